"""What a step means to others: calls that people answer, and sub-agents; the session store is told."""

import contextlib
from contextlib import AbstractAsyncContextManager
from typing import Any

from helix_temporal.activities._state_runs import Place
from helix_temporal.activities._states import StateKeeper
from helix_temporal.activities._step_rules import parse_state, state_of
from helix_temporal.activities._suspensions import step_waits, waits_at
from helix_temporal.agents import AgentRegistry
from helix_temporal.models.messages import Message
from helix_temporal.models.sessions import SliceState
from helix_temporal.models.steps import EndTurnInput, RunStepInput
from helix_temporal.stores.protocols.hot import Appended, StepView


class StepNews:
    """Tells what a step asks for and answers; nobody where there is no session store."""

    def __init__(self, agents: AgentRegistry, states: StateKeeper | None) -> None:
        self._agents, self._states = agents, states

    def beginning(
        self, request: RunStepInput, kept: SliceState, place: Place
    ) -> AbstractAsyncContextManager[None]:
        """The turn's run is recorded while its model is called; see `StateKeeper.beginning`."""
        if self._states is None or not _begins_turn(request):
            return contextlib.nullcontext()
        return self._states.beginning(request, kept, place)

    async def stood(self, request: RunStepInput, view: StepView, appended: Appended) -> None:
        """A step was found: the attempt that made it may have died before its run was recorded."""
        # What the thread has gone on from is over, and its run with it.
        last = appended.head == appended.header.head
        if self._states is not None and last and _begins_turn(request):
            await self._states.begin(request, state_of(view))

    async def answers(self, request: RunStepInput | EndTurnInput, slice_data: bytes) -> None:
        """Calls that a client, or a person, has answered: nothing is pending any more."""
        if self._states is not None and waits_at(parse_state(slice_data), request.head):
            await self._states.suspended.answered(
                request.session_id, request.epoch, request.run_id, request.inputs
            )
            await self._states.children.waits(request.session_id, 0)

    async def waiting(self, request: RunStepInput, answer: Message, appended: Appended) -> dict[str, Any]:
        """Calls that a client, or a person, must answer; none is not told to the workflow."""
        agent, head = self._agents.get(request.agent), appended.head
        waiting = step_waits(appended.header.slice, agent, answer, head)
        if not waiting:
            return {}
        if self._states is not None and appended.header.head == head:
            await self._states.suspended.record(
                request.session_id, request.epoch, request.run_id, answer, head, waiting
            )
            await self._states.children.waits(request.session_id, waiting[0].since)
        return {"waiting": waiting}

    async def children(self, request: RunStepInput | EndTurnInput, answer: Message | None = None) -> None:
        """Results of sub-agents that are in the thread now, and sub-agents that the answer asks for."""
        if self._states is None:
            return
        await self._states.children.answered(request)
        if isinstance(request, RunStepInput) and answer is not None:
            await self._states.children.called(self._agents.get(request.agent), request, answer)


def _begins_turn(request: RunStepInput) -> bool:
    """Whether these are a user's messages rather than results of tools."""
    return request.inputs[0].call is None
