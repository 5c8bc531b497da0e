"""Sessions as people see them: lists, one session, its conversation, its state, its tree."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping

from helix_temporal.agents import Agent
from helix_temporal.models.states import SessionState
from helix_temporal.models.streams import StoredChunk
from helix_temporal.stores.protocols.readable import ReadableStores
from helix_temporal.stores.protocols.threads import Audit
from helix_temporal.views import (
    calls,
    context,
    live,
    queries,
    states,
    storage,
    timeline,
    tree,
    turn_pages,
    turn_positions,
)
from helix_temporal.views.access import ViewedSessions
from helix_temporal.views.calls import SearchProblems
from helix_temporal.views.filters import EVERY_SESSION, Admits, SessionFilter
from helix_temporal.views.models import (
    CheckpointList,
    ConversationPage,
    FoundCall,
    ModelContext,
    RunList,
    SessionBranch,
    SessionList,
    SessionOverview,
    SessionView,
    StateAt,
    StateComparison,
    ThreadPlace,
    TurnAttempt,
    UsageSums,
    WholeMessage,
)
from helix_temporal.views.queries import ListProblems
from helix_temporal.views.session_facts import read_session
from helix_temporal.views.usage import read_usage


class SessionViews:
    """Reads for people; changes nothing and wakes no session.

    Args:
        stores: A `helix_temporal.backends.Backends`, or `helix_temporal.client.SessionStores`.
        admits: Which sessions the viewer may see: a filter, for which lists ask the stores themselves, or a
            function.  Others are as if they were not there, in lists and by id.
        agents: By name, for the instructions and tools of a context; without one these parts are left out.

    Raises:
        InvalidConfigError: See `filters.admits_by`.
    """

    def __init__(
        self,
        stores: ReadableStores,
        *,
        admits: Admits | SessionFilter | None = None,
        agents: Mapping[str, Agent] | None = None,
    ) -> None:
        self._viewed = ViewedSessions(stores, admits)
        self._agents = dict(agents or {})

    # -- lists

    async def list_sessions(
        self, wanted: SessionFilter = EVERY_SESSION, *, limit: int = 50, cursor: str | None = None
    ) -> SessionList:
        """A page, newest change first.  Raises InvalidCursorError, InvalidRequestError."""
        return await queries.list_sessions(self._viewed, wanted, limit, cursor)

    def iterate_sessions(
        self, wanted: SessionFilter = EVERY_SESSION, *, problems: ListProblems | None = None
    ) -> AsyncIterator[SessionOverview]:
        """All of them; memory stays flat.  ``problems`` is told what is left out, as it goes on."""
        return queries.iterate_sessions(self._viewed, wanted, problems)

    def find_calls(
        self,
        wanted: SessionFilter = EVERY_SESSION,
        *,
        tool: str | None = None,
        failed: bool | None = None,
        since: int | None = None,
        until: int | None = None,
        problems: SearchProblems | None = None,
    ) -> AsyncIterator[FoundCall]:
        """Tool calls in the sessions of a filter, newest session first; ``since``, ``until``: of the call.

        Where a thread cannot be read, ``problems`` is told so as the search goes on.
        """
        found = calls.CallFilter(tool=tool, failed=failed, since=since, until=until)
        return calls.find_calls(self._viewed, wanted, found, problems or SearchProblems())

    # -- one session

    async def find_session_calls(
        self,
        session_id: str,
        *,
        tool: str | None = None,
        failed: bool | None = None,
        since: int | None = None,
        until: int | None = None,
        problems: SearchProblems | None = None,
    ) -> AsyncIterator[FoundCall]:
        """As `find_calls`, of one session."""
        state = await self._viewed.load_state(session_id)
        wanted = calls.CallFilter(tool=tool, failed=failed, since=since, until=until)
        told = problems or SearchProblems()
        async for found in calls.find_session_calls(self._viewed, state, wanted, told):
            yield found

    async def load_state(self, session_id: str) -> SessionState:
        """As it is stored."""
        return await self._viewed.load_state(session_id)

    async def get_session(self, session_id: str) -> SessionView:
        """Raises SessionNotFoundError: there is none, or the viewer may not see it (as all below)."""
        return await read_session(self._viewed, await self._viewed.load_state(session_id))

    async def get_usage(self, session_id: str, *, descendants: bool = False) -> UsageSums:
        """What it used, or it and its sub-agents; zeros if nothing was recorded."""
        await self._viewed.load_state(session_id)
        return await read_usage(self._viewed, session_id, descendants=descendants)

    # -- the conversation

    async def read_turns(
        self, session_id: str, *, before: int | None = None, after: int | None = None, limit: int = 20
    ) -> ConversationPage:
        """The newest turns, with the one under way; or those before (from) a position; long texts are cut."""
        state = await self._viewed.load_state(session_id)
        return await turn_pages.read_turns(self._viewed, state, before=before, after=after, turns=limit)

    async def read_turn(
        self, session_id: str, number: int, *, before: int | None = None, after: int | None = None
    ) -> ConversationPage:
        """One turn with whole texts, or the part of it before (from) a position; see `iterate_turn`.

        Raises NotFoundError: there is no such turn (as below); InvalidRequestError: no such part of it.
        """
        state = await self._viewed.load_state(session_id)
        return await turn_pages.read_turn(self._viewed, state, number, before=before, after=after)

    async def iterate_turn(self, session_id: str, number: int) -> AsyncIterator[ConversationPage]:
        """All parts of one turn, in order: a turn that is longer than a page has several."""
        state = await self._viewed.load_state(session_id)
        async for page in turn_pages.iterate_turn(self._viewed, state, number):
            yield page

    async def find_turn(self, session_id: str, number: int) -> int:
        """The position at which a turn begins."""
        state = await self._viewed.load_state(session_id)
        return await turn_positions.find_turn(self._viewed, state, number)

    async def find_lost_attempt(self, session_id: str, number: int) -> TurnAttempt | None:
        """The attempt of a turn that is not in the thread, nor another in its place; else None.

        It was aborted or taken back; or it is under way, and none of its messages is stored yet.
        """
        state = await self._viewed.load_state(session_id)
        return await turn_pages.find_lost_attempt(self._viewed, state, number)

    async def find_answer(self, session_id: str, turn: int | None = None, step: int | None = None) -> int:
        """The position of the answer that a step gave; the newest turn, its last step where none is named.

        Raises:
            NotFoundError: The turn has no such step.
            InvalidRequestError: There is no such turn.
        """
        state = await self._viewed.load_state(session_id)
        return await turn_positions.find_answer(self._viewed, state, turn, step)

    async def read_message(self, session_id: str, position: int) -> WholeMessage:
        """One message with all its text.  Raises NotFoundError: there is none at this position."""
        state = await self._viewed.load_state(session_id)
        return await turn_pages.read_message(self._viewed, state, position)

    async def find_message_id(self, session_id: str, position: int) -> str | None:
        """The id of the message at a position; None where none is there, or it can't be read now."""
        state = await self._viewed.load_state(session_id)
        return await turn_pages.find_message_id(self._viewed, state, position)

    # -- what the model was given, states, runs, sub-agents, storage

    async def get_context(self, session_id: str, position: int) -> ModelContext:
        """What the model was given that gave the message at this position.

        Raises:
            InvalidRequestError: No model's answer stands there.
        """
        state = await self._viewed.load_state(session_id)
        turn = await turn_pages.find_turn_number(self._viewed, state, position)
        thread_id = state.messages_thread_id
        return await context.read_context(
            self._viewed, self._agents, thread_id, session_id, position, turn=turn
        )

    async def get_state(self, session_id: str, checkpoint_id: str | None = None) -> StateAt:
        """The application's values, now or at a checkpoint.

        Raises:
            CheckpointNotFoundError: The session has no such checkpoint.
        """
        state = await self._viewed.load_state(session_id)
        return await states.read_state(self._viewed, state, checkpoint_id)

    async def compare_states(self, session_id: str, before: str, after: str | None = None) -> StateComparison:
        """Where the values at two checkpoints differ, or since one; raises as `get_state`."""
        state = await self._viewed.load_state(session_id)
        return await states.compare_states(self._viewed, state, before, after)

    async def list_checkpoints(
        self, session_id: str, *, limit: int = 50, cursor: str | None = None
    ) -> CheckpointList:
        """A page, newest first.  Raises InvalidCursorError, InvalidRequestError."""
        await self._viewed.load_state(session_id)
        return await states.list_checkpoints(self._viewed, session_id, limit, cursor)

    async def list_runs(self, session_id: str, *, limit: int = 50, cursor: str | None = None) -> RunList:
        """A page, newest first, with discarded attempts.  Raises InvalidCursorError, InvalidRequestError."""
        state = await self._viewed.load_state(session_id)
        return await timeline.list_runs(self._viewed, state, limit, cursor)

    async def get_tree(self, session_id: str) -> SessionBranch:
        """The session with all sub-agents' sessions below it, and what each and all of them used."""
        return await tree.read_tree(self._viewed, await self._viewed.load_state(session_id))

    async def get_place(self, session_id: str) -> ThreadPlace:
        """How its thread is stored, with the objects of its archive."""
        return await storage.read_place(self._viewed, await self._viewed.load_state(session_id))

    async def verify_thread(self, session_id: str) -> Audit | None:
        """Read and verify all of its thread's archive; None where there is no archive."""
        return await storage.verify_thread(self._viewed, await self._viewed.load_state(session_id))

    # -- live

    async def find_live_place(self, session_id: str) -> int:
        """The stream's sequence behind which the turn under way begins; of an idle session its newest.

        Raises:
            InvalidConfigError: No stream store is known.
        """
        return await live.find_live_place(self._viewed, session_id)

    def follow_session(self, session_id: str, after: int | None = None) -> AsyncGenerator[StoredChunk]:
        """Chunks of its stream, also of turns that begin later, until it is deleted.

        Raises:
            StreamTruncatedError: What comes next is not kept any more: load the session anew.
            StreamFailedError, StoreUnavailableError, InvalidConfigError: See `live.follow_session`.
        """
        return live.follow_session(self._viewed, session_id, after)
