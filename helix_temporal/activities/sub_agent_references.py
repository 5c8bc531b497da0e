"""References of sessions to their sub-agents' sessions, in the session store."""

import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

from helix_temporal.activities.state_changes import save_change
from helix_temporal.activities.sub_agents import agent_calls
from helix_temporal.activities.traces import TurnTraces
from helix_temporal.agents import Agent
from helix_temporal.errors import HelixError, SessionNotFoundError
from helix_temporal.models.messages import Message
from helix_temporal.models.states import SessionState, SessionStatus, SubSessionRef
from helix_temporal.models.steps import EndTurnInput, RunStepInput
from helix_temporal.models.waiting import is_child_id
from helix_temporal.session.projection import (
    GIVEN_UP,
    is_at_work,
    list_cut_refs,
    list_told_calls,
    make_ended_ref,
    project_call_owners,
    project_waiting_child,
    project_without_children,
)
from helix_temporal.stores.protocols.sessions import SessionStore

_log = logging.getLogger(__name__)

_TELLINGS: Final = 5


class SubAgentReferences:
    """Keeps the references of parents to their sub-agents' sessions; every call may be repeated.

    Args:
        traces: Who tells of calls whose results no step takes.
    """

    def __init__(self, store: SessionStore, traces: TurnTraces | None = None) -> None:
        self._store, self._traces = store, traces or TurnTraces()

    async def add_called(self, agent: Agent, request: RunStepInput, answer: Message) -> None:
        """An answer asks for tools: those that are agents have sessions from now on."""
        refs = _build_child_refs(agent, request, answer)
        if refs:
            # A store that has lost the session gets it back with its next turn.
            with contextlib.suppress(SessionNotFoundError):
                await self._store.add_sub_session_refs(request.session_id, refs, epoch=request.epoch)

    async def mark_answered(self, request: RunStepInput | EndTurnInput) -> None:
        """Results that are in the thread now: the sessions that gave them have ended."""
        session_id, epoch = request.session_id, request.epoch
        ends = [make_ended_ref(each, request.run_id) for each in request.inputs if each.child is not None]
        refs = [each for each in ends if each.agent_type]
        if refs:
            with contextlib.suppress(SessionNotFoundError):
                await self._store.add_sub_session_refs(session_id, refs, epoch=epoch)
        for each in ends:
            if not each.agent_type:
                await self._set_child_status(session_id, each.sub_session_id, each.status, epoch)
        await self._drop_child_waits(
            session_id, [each for each in ends if each.status is not SessionStatus.COMPLETED]
        )
        killed = [each.child for each in request.inputs if each.child is not None and each.child.killed]
        for child in killed:
            await self._pass_over(child.session_id)

    async def mark_cut(self, session_id: str, children: Sequence[str], epoch: int) -> None:
        """Calls that were cut off with their turn."""
        if children and self._traces.emitter is not None:
            for ref in await self._store.list_sub_session_refs(session_id):
                if ref.sub_session_id in children and is_at_work(ref):
                    await self._tell_cut_call(session_id, ref)
        for child in children:
            await self._set_child_status(session_id, child, SessionStatus.INTERRUPTED, epoch)
        await self._drop_child_waits(session_id, [SubSessionRef(sub_session_id=child) for child in children])

    async def abandon_all(self, session_id: str, epoch: int | None) -> None:
        """A run was left without its end: its children have ended, or whoever ended it ended them.

        One that had answered says so itself: its answer is in no step of the run.  One whose session had
        ended since it waits for people is waited for by nobody any more, nor are those below it.
        """
        for ref in await self._store.list_sub_session_refs(session_id):
            if is_at_work(ref):
                await self._abandon_child(session_id, ref, epoch)

    async def follow_thread(
        self, session_id: str, epoch: int, called: Callable[[], Awaitable[Collection[str]]]
    ) -> None:
        """Let the references follow the thread: work goes on for those alone whose calls it has open.

        Whatever cut the others, and whoever was to say so: nobody takes their results any more.  ``called``
        is asked for the sessions of the open calls where that matters.
        """
        refs = [ref for ref in await self._store.list_sub_session_refs(session_id) if is_at_work(ref)]
        # What an application refers to itself is its own.
        refs = [ref for ref in refs if is_child_id(ref.sub_session_id)]
        gone = list_cut_refs(refs, await called()) if refs else []
        for ref in gone:
            await self._abandon_child(session_id, ref, epoch)

    async def _abandon_child(self, session_id: str, ref: SubSessionRef, epoch: int | None) -> None:
        """From below, and the reference last: whoever dies on the way is followed by one who finds it.

        Sessions of sub-agents know of no epoch of ours: the fence is asked before they are touched.
        """
        name = ref.sub_session_id
        await self._set_child_status(session_id, name, ref.status, epoch)
        answered = await self._has_answered(name)
        if not answered:
            await self._pass_over(name)
        await self._drop_child_waits(session_id, [ref])
        await self._tell_cut_call(session_id, ref)
        status = SessionStatus.COMPLETED if answered else SessionStatus.INTERRUPTED
        await self._set_child_status(session_id, name, status, epoch)

    async def _tell_cut_call(self, session_id: str, ref: SubSessionRef) -> None:
        """Tell of a call whose result no step takes: the root of the sub-agent's turn is a child of its span.

        Telemetry alone asks, so nobody else fails for want of an answer.
        """
        if self._traces.emitter is None or ref.run_id is None:
            return
        try:
            run = await self._store.get_run(session_id, ref.run_id)
            called = (await self._store.list_runs(ref.sub_session_id, limit=1)).items
        except HelixError as error:
            _log.warning("session %s: cut call of %s not traced: %s", session_id, ref.sub_session_id, error)
            return
        # A thread that goes on may have begun no turn for this call: the newest one is an earlier call's.
        if run is not None and called and (called[0].ended_at or ref.updated_at) >= ref.updated_at:
            self._traces.tell_cut_call(run, ref, called[0])

    async def _pass_over(self, session_id: str) -> None:
        """Nobody waits for a session any more, nor for those below it."""
        await self.abandon_all(session_id, None)
        await self._save_change(
            session_id, lambda state: GIVEN_UP if state.status is SessionStatus.PAUSED else {}
        )

    async def tell_callers(self, session_id: str) -> None:
        """A session waits for people, or no more: its root knows whose its calls are, its parent of it.

        Both have writers of their own, and what those have stored meanwhile stays.  They know no epoch of
        this session, so that they can't refuse a late attempt: after each telling, this looks whether the
        state that it told was the newest.
        """
        told: SessionState | None = None
        for _ in range(_TELLINGS):
            state = await self._store.load_state(session_id)
            if state is None or state.parent_session_id is None or state.root_session_id is None:
                return
            if told is not None and list_told_calls(told) == list_told_calls(state):
                return
            told = state
            await self._save_change(state.parent_session_id, partial(project_waiting_child, child=state))
            await self._save_change(state.root_session_id, partial(project_call_owners, child=state))

    async def _drop_child_waits(self, session_id: str, refs: Sequence[SubSessionRef]) -> None:
        """Sessions that ended otherwise than by an answer may have been waiting until then."""
        names = {each.sub_session_id for each in refs}
        if names:
            await self._save_change(session_id, lambda parent: project_without_children(parent, names))

    async def _has_answered(self, session_id: str) -> bool:
        child = await self._store.load_state(session_id)
        return child is not None and child.status is SessionStatus.COMPLETED

    async def _save_change(
        self, session_id: str, change: Callable[[SessionState], Mapping[str, Any]]
    ) -> None:
        await save_change(self._store, session_id, None, change, "a sub-agent's wait was noted")

    async def _set_child_status(
        self, session_id: str, child: str, status: SessionStatus, epoch: int | None
    ) -> None:
        with contextlib.suppress(SessionNotFoundError):
            await self._store.update_sub_session_ref(session_id, child, status, epoch=epoch)


def _build_child_refs(agent: Agent, request: RunStepInput, answer: Message) -> list[SubSessionRef]:
    refs: dict[str, SubSessionRef] = {}
    for each in agent_calls(agent, request.session_id, answer):
        if not each.facts.approval:  # that has none before somebody agrees
            refs[each.session_id] = SubSessionRef(
                sub_session_id=each.session_id,
                agent_type=each.facts.agent or "",
                tool=each.facts.name,
                run_id=request.run_id,
                parent_tool_call_id=each.call.id,
            )
    return list(refs.values())
