"""The session store's part in sub-agents: whose they are, and how each of them ended."""

import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from helix_temporal.activities._agent_calls import agent_calls
from helix_temporal.activities._state_saves import save_change
from helix_temporal.agents import Agent
from helix_temporal.errors import SessionNotFoundError
from helix_temporal.models.children import is_child_id
from helix_temporal.models.messages import Message
from helix_temporal.models.records import Head
from helix_temporal.models.sessions import SliceState
from helix_temporal.models.states import (
    CreateSession,
    ForkOrigin,
    SessionState,
    SessionStatus,
    SubSessionRef,
    SuspendedChildWait,
)
from helix_temporal.models.steps import EndTurnInput, OpenSessionInput, RunStepInput, StepInput
from helix_temporal.stores.protocols.hot import HotHeader
from helix_temporal.stores.protocols.sessions import SessionStore

_AWAITING: Final = "suspended_awaiting_children"
_TELLINGS: Final = 5
_MAX_OWNED: Final = 256
"""Calls of sub-agents that a root remembers the owners of."""
_MAX_ANSWERED: Final = 32
"""Of them, answered ones of one sub-agent."""
_PASSED_OVER: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "status": SessionStatus.INTERRUPTED,
        "failure_reason": "parent_suspended",
        "pending_client_tool_calls": {},
        "suspension_context": None,
        "suspended_step_id": None,
        _AWAITING: (),
    }
)
"""What changes in the state of a session that waits for people, and that nobody will wake."""


class ChildRefs:
    """Keeps the references of parents to their sub-agents' sessions; every call may be repeated."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def called(self, agent: Agent, request: RunStepInput, answer: Message) -> None:
        """An answer asks for tools: those that are agents have sessions from now on."""
        refs = _refs(agent, request, answer)
        if refs:
            # A store that has lost the session gets it back with its next turn.
            with contextlib.suppress(SessionNotFoundError):
                await self._store.add_sub_session_refs(request.session_id, refs, epoch=request.epoch)

    async def answered(self, request: RunStepInput | EndTurnInput) -> None:
        """Results that are in the thread now: the sessions that gave them have ended."""
        session_id, epoch = request.session_id, request.epoch
        ends = [_ended(each, request.run_id) for each in request.inputs if each.child is not None]
        refs = [each for each in ends if each.agent_type]
        if refs:
            with contextlib.suppress(SessionNotFoundError):
                await self._store.add_sub_session_refs(session_id, refs, epoch=epoch)
        for each in ends:
            if not each.agent_type:
                await self._set(session_id, each.sub_session_id, each.status, epoch)
        await self._gone(session_id, [each for each in ends if each.status is not SessionStatus.COMPLETED])
        killed = [each.child for each in request.inputs if each.child is not None and each.child.killed]
        for child in killed:
            await self._pass_over(child.session_id)

    async def cut(self, session_id: str, children: Sequence[str], epoch: int) -> None:
        """Calls that were cut off with their turn."""
        for child in children:
            await self._set(session_id, child, SessionStatus.INTERRUPTED, epoch)
        await self._gone(session_id, [SubSessionRef(sub_session_id=child) for child in children])

    async def left(self, session_id: str, epoch: int | None) -> None:
        """A run was left without its end: its children have ended, or whoever ended it ended them.

        One that had answered says so itself: its answer is in no step of the run.  One whose session had
        ended since it waits for people is waited for by nobody any more, nor are those below it.
        """
        for ref in await self._store.list_sub_session_refs(session_id):
            if _is_at_work(ref):
                await self._leave(session_id, ref, epoch)

    async def settle(
        self, session_id: str, epoch: int, called: Callable[[], Awaitable[Collection[str]]]
    ) -> None:
        """Let the references follow the thread: work goes on for those alone whose calls it has open.

        Whatever cut the others, and whoever was to say so: nobody takes their results any more.  ``called``
        is asked for the sessions of the open calls where that matters.
        """
        refs = [ref for ref in await self._store.list_sub_session_refs(session_id) if _is_at_work(ref)]
        # What an application refers to itself is its own.
        refs = [ref for ref in refs if is_child_id(ref.sub_session_id)]
        gone = cut_off(refs, await called()) if refs else []
        for ref in gone:
            await self._leave(session_id, ref, epoch)

    async def _leave(self, session_id: str, ref: SubSessionRef, epoch: int | None) -> None:
        """From below, and the reference last: whoever dies on the way is followed by one who finds it.

        Sessions of sub-agents know of no epoch of ours: the fence is asked before they are touched.
        """
        name = ref.sub_session_id
        await self._set(session_id, name, ref.status, epoch)
        answered = await self._has_answered(name)
        if not answered:
            await self._pass_over(name)
        await self._gone(session_id, [ref])
        status = SessionStatus.COMPLETED if answered else SessionStatus.INTERRUPTED
        await self._set(session_id, name, status, epoch)

    async def _pass_over(self, session_id: str) -> None:
        """Nobody waits for a session any more, nor for those below it."""
        await self.left(session_id, None)
        await self._change(
            session_id, lambda state: _PASSED_OVER if state.status is SessionStatus.PAUSED else {}
        )

    async def waits(self, session_id: str, since: int) -> None:
        """A session waits for people, or no more: its root knows whose its calls are, its parent of it.

        Theirs are other writers: what they have stored meanwhile stays.  They know no epoch of this one, so
        that a late attempt can't be refused: whoever has told looks whether it was the newest.
        """
        told: SessionState | None = None
        for _ in range(_TELLINGS):
            state = await self._store.load_state(session_id)
            if state is None or state.parent_session_id is None or state.root_session_id is None:
                return
            if told is not None and _calls(told) == _calls(state):
                return
            told = state
            await self._change(state.parent_session_id, partial(_awaiting, child=state, since=since))
            await self._change(state.root_session_id, partial(_owners, child=state))

    async def _gone(self, session_id: str, refs: Sequence[SubSessionRef]) -> None:
        """Sessions that ended otherwise than by an answer may have been waiting until then."""
        names = {each.sub_session_id for each in refs}
        if names:
            await self._change(session_id, lambda parent: _not_awaiting(parent, names))

    async def _has_answered(self, session_id: str) -> bool:
        child = await self._store.load_state(session_id)
        return child is not None and child.status is SessionStatus.COMPLETED

    async def _change(self, session_id: str, change: Callable[[SessionState], Mapping[str, Any]]) -> None:
        await save_change(self._store, session_id, None, change, "a sub-agent's wait was noted")

    async def _set(self, session_id: str, child: str, status: SessionStatus, epoch: int | None) -> None:
        with contextlib.suppress(SessionNotFoundError):
            await self._store.update_sub_session_ref(session_id, child, status, epoch=epoch)


def cut_off(refs: Sequence[SubSessionRef], called: Collection[str]) -> list[SubSessionRef]:
    """Pure: those whose calls are not among the open ones."""
    return [ref for ref in refs if ref.sub_session_id not in called]


def _is_at_work(ref: SubSessionRef) -> bool:
    return ref.status is SessionStatus.ACTIVE and ref.wait_mode == "blocking"


def _refs(agent: Agent, request: RunStepInput, answer: Message) -> list[SubSessionRef]:
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


def _calls(child: SessionState) -> tuple[object, object]:
    """Pure: what others are told of a session that waits for people."""
    return child.pending_client_tool_calls, child.completed_client_tool_calls


def _awaiting(parent: SessionState, child: SessionState, since: int) -> dict[str, Any]:
    """Pure: the parent's children that wait, with this one if it does."""
    others: tuple[SuspendedChildWait, ...] = _not_awaiting(parent, {child.session_id})[_AWAITING]
    if child.pending_client_tool_calls:
        first = min(child.pending_client_tool_calls)
        before = (each.until for each in parent.suspended_awaiting_children if each not in others)
        wait = SuspendedChildWait(
            sub_session_id=child.session_id,
            tool_call_id=first,
            agent_type=child.agent_type,
            since=since,
            until=next(before, None),
        )
        others = (*others, wait)
    return {_AWAITING: others}


def _not_awaiting(parent: SessionState, children: Collection[str]) -> dict[str, Any]:
    """Pure: the parent's children that wait, without these."""
    waiting = parent.suspended_awaiting_children
    return {_AWAITING: tuple(each for each in waiting if each.sub_session_id not in children)}


def _owners(root: SessionState, child: SessionState) -> dict[str, Any]:
    """Pure: whose a call is, as far as the root has to know; late answers find those that were answered."""
    others = {
        call: owner for call, owner in root.client_tool_call_ownership.items() if owner != child.session_id
    }
    completed = sorted(child.completed_client_tool_calls.values(), key=lambda each: each.completed_at)
    mine = (
        *(each.tool_call_id for each in completed[-_MAX_ANSWERED:]),
        *child.pending_client_tool_calls,
    )
    # The first go where there are too many: the oldest, where the store keeps the order of a mapping.
    kept = dict(list(others.items())[-max(_MAX_OWNED - len(mine), 1) :])
    return {"client_tool_call_ownership": kept | dict.fromkeys(mine, child.session_id)}


def _ended(each: StepInput, run_id: str | None) -> SubSessionRef:
    """The reference as the result leaves it; without an agent where none was called."""
    assert each.child is not None
    return SubSessionRef(
        sub_session_id=each.child.session_id,
        agent_type=each.child.agent,
        tool=each.name or "",
        run_id=run_id,
        parent_tool_call_id=each.call,
        status=SessionStatus(each.child.status),
    )


def new_session(
    request: OpenSessionInput, header: HotHeader, kept: SliceState, source: SessionState | None, at: Head
) -> CreateSession:
    """Pure: the state that a session begins with, where its thread's finished turns end."""
    fields: dict[str, Any] = {} if request.properties is None else request.properties.changes()
    fields.pop("tracing_context", None)  # set once the session is there
    if request.thread_id != request.session_id:
        fields["thread_id"] = request.thread_id
    if source is not None and "tags" not in fields:
        fields["tags"] = source.tags
    if request.parent is not None:
        fields |= {
            "parent_session_id": request.parent.session_id,
            "root_session_id": request.parent.root_session_id,
        }
    return CreateSession(
        agent_type=request.agent,
        custom_state=kept.values if source is None else source.custom_state,
        metadata=dict(request.metadata),
        mode="standard" if kept.options is not None and not kept.options.persistent else "persistent",
        head=at,
        stream_id=request.session_id,
        forked_from=None if source is None else ForkOrigin(session_id=source.session_id, head=header.head),
        **fields,
    )
