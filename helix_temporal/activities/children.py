"""Activities about the sessions of sub-agents: which there are, and whether anybody serves them."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from temporalio import activity
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal.activities._child_list import Listed, by_calls, by_refs
from helix_temporal.activities._context import beating
from helix_temporal.activities._errors import typed
from helix_temporal.activities._limits import limited_as
from helix_temporal.activities._step_rules import parse_state
from helix_temporal.activities.states import checked_size
from helix_temporal.agents import AgentRegistry
from helix_temporal.errors import SessionNotFoundError, ThreadNotFoundError
from helix_temporal.models.children import TakenUpInput, TakenUpResult
from helix_temporal.models.handles import ChildInfo, ListChildrenInput
from helix_temporal.models.queries import Page
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.stores.protocols.threads import ThreadStore

if TYPE_CHECKING:
    from temporalio.client import WorkflowHandle

_AT_ONCE: Final = 8
"""Threads of sub-agents that are looked at side by side."""


class ChildActivities:
    """What is known of sub-agents' sessions; none is woken.

    Args:
        sessions: None where the thread is all that there is.
        max_payload: Bytes that a result may have.
        beat_every: Seconds between background heartbeats.
    """

    def __init__(
        self,
        threads: ThreadStore,
        agents: AgentRegistry,
        sessions: SessionStore | None = None,
        *,
        max_payload: int = 256 * 1024,
        beat_every: float = 1.0,
    ) -> None:
        self._threads, self._agents, self._sessions = threads, agents, sessions
        self._max_payload, self._beat_every = max_payload, beat_every

    @activity.defn(name="helix.sessions.children")
    @typed
    @limited_as("heartbeat")
    async def children(self, request: ListChildrenInput) -> Page[ChildInfo]:
        """A page of the sessions that a session's sub-agents have, newest first, and what each used."""
        async with beating(self._beat_every):
            listed = await self._listed(request)
            items = await self._used(listed.page.items, listed.unsure)
        page = listed.page.model_copy(update={"items": tuple(items)})
        checked_size(page, self._max_payload, "page of sub-agents")
        return page

    @activity.defn(name="helix.sessions.taken_up")
    @typed
    async def taken_up(self, request: TakenUpInput) -> TakenUpResult:
        """Whether a worker has ever begun with an execution; one that none has begun with is terminated.

        Nothing of it is lost: it has done nothing.  Left alone it would wait until its time is over.
        """
        handle = activity.client().get_workflow_handle(request.workflow_id, run_id=request.run_id)
        begun = True
        with _unless_gone():
            begun = await _has_begun(handle)
        if not begun:
            with _unless_gone():
                await handle.terminate(reason="no worker began with it in time")
        return TakenUpResult(taken_up=begun)

    async def _listed(self, request: ListChildrenInput) -> Listed:
        if self._sessions is not None:
            refs = await self._sessions.list_sub_session_refs(request.session_id)
            if refs or await self._sessions.load_state(request.session_id) is not None:
                return by_refs(request, refs)
        try:
            facts = await self._threads.facts(request.thread)
        except ThreadNotFoundError:
            if request.if_any:
                return Listed(Page(items=(), total=0))
            raise SessionNotFoundError(
                f"session {request.session_id!r} has neither a state nor a thread"
            ) from None
        agent = self._agents.get(parse_state(facts.slice).agent)
        return await by_calls(self._threads, agent, request, facts)

    async def _used(self, items: Sequence[ChildInfo], unsure: frozenset[str]) -> list[ChildInfo]:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(child: ChildInfo) -> ChildInfo | None:
            if child.remote is not None:
                return child
            async with gate:
                try:
                    facts = await self._threads.facts(child.session_id)
                except ThreadNotFoundError:
                    # It did not get so far, or was deleted since.
                    return None if child.session_id in unsure else child
            kept = parse_state(facts.slice)
            return child.model_copy(update={"usage": kept.usage, "steps": kept.steps})

        found = await asyncio.gather(*(one(each) for each in items))
        return [each for each in found if each is not None]


async def _has_begun(handle: "WorkflowHandle[Any, Any]") -> bool:
    async for event in handle.fetch_history_events():
        if event.HasField("workflow_task_started_event_attributes"):
            return True
    return False


@contextlib.contextmanager
def _unless_gone() -> Iterator[None]:
    """An execution that has ended needs nothing more."""
    try:
        yield
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
