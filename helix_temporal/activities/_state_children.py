"""The session store's part in sub-agents: whose they are, and how each of them ended."""

import contextlib
from collections.abc import Sequence
from typing import Any

from helix_temporal.activities._state_place import settled
from helix_temporal.agents import Agent
from helix_temporal.errors import SessionNotFoundError
from helix_temporal.models.children import child_session_id
from helix_temporal.models.messages import Message, why_not_run
from helix_temporal.models.sessions import SliceState
from helix_temporal.models.states import (
    CreateSession,
    ForkOrigin,
    SessionState,
    SessionStatus,
    SubSessionRef,
)
from helix_temporal.models.steps import EndTurnInput, OpenSessionInput, RunStepInput, StepInput
from helix_temporal.stores.protocols.hot import HotHeader
from helix_temporal.stores.protocols.sessions import SessionStore


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

    async def cut(self, session_id: str, children: Sequence[str], epoch: int) -> None:
        """Calls that were cut off with their turn."""
        for child in children:
            await self._set(session_id, child, SessionStatus.INTERRUPTED, epoch)

    async def left(self, session_id: str, epoch: int) -> None:
        """A run was left without an end: whoever ended it ended its children."""
        for ref in await self._store.list_sub_session_refs(session_id):
            if ref.status is SessionStatus.ACTIVE and ref.wait_mode == "blocking":
                await self._set(session_id, ref.sub_session_id, SessionStatus.INTERRUPTED, epoch)

    async def _set(self, session_id: str, child: str, status: SessionStatus, epoch: int) -> None:
        with contextlib.suppress(SessionNotFoundError):
            await self._store.update_sub_session_ref(session_id, child, status, epoch=epoch)


def _refs(agent: Agent, request: RunStepInput, answer: Message) -> list[SubSessionRef]:
    refs: dict[str, SubSessionRef] = {}
    for ordinal, call in enumerate(answer.tool_calls):
        tool = agent.tool(call.name)
        facts = None if tool is None else tool.facts(agent.name)
        if facts is None or facts.kind != "agent" or facts.approval or why_not_run(call) is not None:
            continue  # it has no session, or none before somebody agrees
        child = child_session_id(request.session_id, facts.name, facts.thread, f"{answer.id}.{ordinal}")
        refs[child] = SubSessionRef(
            sub_session_id=child,
            agent_type=facts.agent or "",
            run_id=request.run_id,
            parent_tool_call_id=call.id,
        )
    return list(refs.values())


def _ended(each: StepInput, run_id: str | None) -> SubSessionRef:
    """The reference as the result leaves it; without an agent where none was called."""
    assert each.child is not None
    return SubSessionRef(
        sub_session_id=each.child.session_id,
        agent_type=each.child.agent,
        run_id=run_id,
        parent_tool_call_id=each.call,
        status=SessionStatus(each.child.status),
    )


def new_session(
    request: OpenSessionInput, header: HotHeader, kept: SliceState, source: SessionState | None
) -> CreateSession:
    """Pure: the state that a session begins with."""
    fields: dict[str, Any] = {}
    if request.parent is not None:
        fields = {
            "parent_session_id": request.parent.session_id,
            "root_session_id": request.parent.root_session_id,
        }
    return CreateSession(
        agent_type=request.agent,
        custom_state=kept.values if source is None else source.custom_state,
        metadata=dict(request.metadata),
        tags=() if source is None else source.tags,
        head=settled(header),
        forked_from=None if source is None else ForkOrigin(session_id=source.session_id, head=header.head),
        **fields,
    )
