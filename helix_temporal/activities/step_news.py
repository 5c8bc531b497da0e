"""What a step means to waiting calls, sub-agents and the turn's run, told to the session store."""

import contextlib
from contextlib import AbstractAsyncContextManager
from typing import Any

from helix_temporal.activities.runs import Place
from helix_temporal.activities.session_sync import SessionSync
from helix_temporal.activities.step_facts import (
    record_of,
)
from helix_temporal.activities.suspended_turns import (
    list_step_waits,
)
from helix_temporal.agents import AgentRegistry
from helix_temporal.models.messages import (
    Message,
)
from helix_temporal.models.steps import EndTurnInput, RunStepInput
from helix_temporal.session.record import (
    SessionRecord,
    find_suspension,
    parse_record,
)
from helix_temporal.stores.protocols.hot import Appended, StepView


class StepNews:
    """Tells what a step asks for and answers; nobody where there is no session store."""

    def __init__(self, agents: AgentRegistry, states: SessionSync | None) -> None:
        self._agents, self._states = agents, states

    def recording_run(
        self, request: RunStepInput, record: SessionRecord, place: Place
    ) -> AbstractAsyncContextManager[None]:
        """Record the turn's run while its model is called; see `SessionSync.recording_run`."""
        if self._states is None or not _begins_turn(request):
            return contextlib.nullcontext()
        return self._states.recording_run(request, record, place)

    async def tell_standing_step(self, request: RunStepInput, view: StepView, appended: Appended) -> None:
        """Record the run of a step that was found: the attempt that made it may have died before."""
        # What the thread has gone on from is over, and its run with it.
        last = appended.head == appended.header.head
        if self._states is not None and last and _begins_turn(request):
            await self._states.begin_run(request, record_of(view))

    async def tell_answers(self, request: RunStepInput | EndTurnInput, slice_data: bytes) -> None:
        """Tell of calls that a client or a person has answered: nothing is pending any more."""
        if self._states is not None and find_suspension(parse_record(slice_data), request.head):
            await self._states.suspended.save_resumption(
                request.session_id, request.epoch, request.run_id, request.inputs
            )
            await self._states.children.tell_callers(request.session_id)

    async def tell_waiting_calls(
        self, request: RunStepInput, answer: Message, appended: Appended
    ) -> dict[str, Any]:
        """Tell of calls that a client or a person must answer; the field that names them, if any do."""
        agent, head = self._agents.get_agent(request.agent), appended.head
        waiting = list_step_waits(appended.header.slice, agent, answer, head)
        if not waiting:
            return {}
        if self._states is not None and appended.header.head == head:
            await self._states.suspended.save_waiting(
                request.session_id, request.epoch, request.run_id, answer, head, waiting
            )
            await self._states.children.tell_callers(request.session_id)
        return {"waiting": waiting}

    async def tell_sub_agents(
        self, request: RunStepInput | EndTurnInput, answer: Message | None = None
    ) -> None:
        """Tell of sub-agents whose results are in the thread now, and of those that the answer asks for."""
        if self._states is None:
            return
        await self._states.children.mark_answered(request)
        if isinstance(request, RunStepInput) and answer is not None:
            await self._states.children.add_called(self._agents.get_agent(request.agent), request, answer)


def _begins_turn(request: RunStepInput) -> bool:
    """Whether these are a user's messages rather than results of tools."""
    return request.inputs[0].call is None
