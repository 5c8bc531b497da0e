"""Activities for the handle of a session: its state, its turns, its usage; they change nothing."""

from temporalio import activity

from helix_temporal.activities._runtime import heartbeat_with_progress, limited_as, raise_application_errors
from helix_temporal.activities.rewinds import list_turns, turn_of
from helix_temporal.activities.stores import checked_size
from helix_temporal.activities.usage import ThreadUsage, paid_calls, thread_usage
from helix_temporal.errors import InvalidRequestError, SessionNotFoundError
from helix_temporal.models.checkpoints import CheckpointMeta
from helix_temporal.models.handles import (
    FindTurnInput,
    FindTurnResult,
    ListTurnsInput,
    ListTurnsResult,
    ModelCalls,
    SessionUsage,
    ShowSessionInput,
    ShowSessionResult,
)
from helix_temporal.models.states import SessionState, SessionStatus
from helix_temporal.models.store_calls import ListCheckpointsInput, Page, SessionQuery, SessionSummary
from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.session.projection import fields_of_record
from helix_temporal.session.record import find_suspension, parse_record
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.stores.protocols.threads import ThreadFacts, ThreadStore, find_facts
from helix_temporal.stores.protocols.usage import UsageStore


class SessionReads:
    """What a handle asks for, from wherever it is: no session is woken.

    Args:
        sessions: None where the state is in the thread's slice alone.
        max_payload: Bytes that a result may have.
        beat_every: Seconds between background heartbeats.
    """

    def __init__(
        self,
        threads: ThreadStore,
        usage: UsageStore,
        sessions: SessionStore | None = None,
        *,
        max_payload: int = 256 * 1024,
        beat_every: float = 1.0,
    ) -> None:
        self._threads, self._usage, self._sessions = threads, usage, sessions
        self._max_payload, self._beat_every = max_payload, beat_every

    @activity.defn(name="helix.sessions.show")
    @raise_application_errors
    async def show(self, request: ShowSessionInput) -> ShowSessionResult:
        """The state from the session store, or where it has none, what the thread's slice says; or a run."""
        if request.run_id is not None:
            store = self._sessions
            run = None if store is None else await store.get_run(request.session_id, request.run_id)
            return ShowSessionResult(run=run)
        state = None if self._sessions is None else await self._sessions.load_state(request.session_id)
        if state is None and (facts := await find_facts(self._threads, request.thread)) is not None:
            state = state_from_slice(request.session_id, facts)
        result = ShowSessionResult(state=state)
        checked_size(result, self._max_payload, "state")
        return result

    @activity.defn(name="helix.sessions.find")
    @raise_application_errors
    async def find(self, request: SessionQuery) -> Page[SessionSummary]:
        """A page of sessions."""
        if self._sessions is None:
            raise InvalidRequestError("the workers have no session store, which would list sessions")
        found = await self._sessions.list_sessions(request)
        page: Page[SessionSummary] = Page(
            items=found.sessions, next_cursor=found.next_cursor, has_more=found.has_more, total=found.total
        )
        checked_size(page, self._max_payload, "page of sessions")
        return page

    @activity.defn(name="helix.sessions.checkpoints")
    @raise_application_errors
    async def checkpoints(self, request: ListCheckpointsInput) -> Page[CheckpointMeta]:
        """A page of checkpoints; without a session store there are none."""
        if self._sessions is None:
            return Page(items=(), total=0)
        return await self._sessions.list_checkpoints(
            request.session_id, limit=request.limit, cursor=request.cursor, order=request.order
        )

    @activity.defn(name="helix.sessions.usage")
    @raise_application_errors
    @limited_as("heartbeat")
    async def usage(self, request: ShowSessionInput) -> SessionUsage:
        """What is in the thread, what was paid, and what was recorded, descendants included."""
        async with heartbeat_with_progress(self._beat_every):
            recorded = await self._usage.get_rollup(request.session_id, include_sub_agents=True)
            facts = await find_facts(self._threads, await self._find_thread(request))
            if facts is None and recorded is None:
                raise SessionNotFoundError(f"session {request.session_id!r} has no thread and no usage")
            thread = ThreadUsage() if facts is None else await thread_usage(self._threads, facts)
            entries = await self._usage.get_entries(request.session_id, kinds=["tokens"])
        return SessionUsage(
            tokens=thread.tokens,
            steps=thread.answers,
            in_thread=ModelCalls(calls=thread.calls, tokens=thread.own_tokens),
            paid=paid_calls(entries),
            recorded=recorded,
        )

    @activity.defn(name="helix.sessions.turns")
    @raise_application_errors
    @limited_as("heartbeat")
    async def turns(self, request: ListTurnsInput) -> ListTurnsResult:
        """A page of finished turns."""
        async with heartbeat_with_progress(self._beat_every):
            return await list_turns(
                self._threads,
                request.thread_id,
                request.start,
                request.number,
                request.limit,
                request.newest,
            )

    @activity.defn(name="helix.sessions.find_turn")
    @raise_application_errors
    @limited_as("heartbeat")
    async def find_turn(self, request: FindTurnInput) -> FindTurnResult:
        """The finished turn of a message."""
        async with heartbeat_with_progress(self._beat_every):
            return await turn_of(self._threads, request.thread_id, request.message_id)

    async def _find_thread(self, request: ShowSessionInput) -> str:
        """The session's thread: as asked for, or as its state says, or the one that has its id."""
        if request.thread_id is None and self._sessions is not None:
            state = await self._sessions.load_state(request.session_id)
            if state is not None and state.thread_id is not None:
                return state.thread_id
        return request.thread


def state_from_slice(session_id: str, facts: ThreadFacts) -> SessionState:
    """What the slice of its thread tells of a session that the session store does not have."""
    record = parse_record(facts.slice)
    committed = facts.head.position == facts.committed
    waits = not committed and find_suspension(record, facts.head) is not None
    return SessionState(
        session_id=session_id,
        **fields_of_record(record),
        status=SessionStatus.PAUSED if waits else SessionStatus.ACTIVE,
        version=max(facts.slice_version, 1),
        step_count=record.steps,
        current_run_id=None if committed else record.run,
        head=facts.head if committed else EMPTY,
    )
