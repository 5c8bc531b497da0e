"""Sessions as people see them: lists, one session, its conversation, its state, its tree."""

from collections.abc import AsyncIterator, Mapping

from helix_temporal.agents import Agent
from helix_temporal.client import ReadableStores
from helix_temporal.models.states import SessionState
from helix_temporal.views import calls, queries, turn_pages, turn_places
from helix_temporal.views.access import Admits, ViewedSessions
from helix_temporal.views.filters import SessionFilter
from helix_temporal.views.models import (
    ConversationPage,
    FoundCall,
    SessionList,
    SessionOverview,
    SessionView,
    UsageSums,
    WholeMessage,
)
from helix_temporal.views.session_facts import read_session
from helix_temporal.views.usage import read_usage

EVERY_SESSION = SessionFilter()


class SessionViews:
    """Reads for people; changes nothing and wakes no session.

    Args:
        stores: A `helix_temporal.backends.Backends`, or `helix_temporal.client.SessionStores`.
        admits: Which sessions the viewer may see: others are as if they were not there, in lists and by id.
        agents: By name, for the instructions and tools of a context; without one these parts are left out.
    """

    def __init__(
        self,
        stores: ReadableStores,
        *,
        admits: Admits | None = None,
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

    def iterate_sessions(self, wanted: SessionFilter = EVERY_SESSION) -> AsyncIterator[SessionOverview]:
        """All of them; memory stays flat."""
        return queries.iterate_sessions(self._viewed, wanted)

    def find_calls(
        self,
        wanted: SessionFilter = EVERY_SESSION,
        *,
        tool: str | None = None,
        failed: bool | None = None,
        since: int | None = None,
        until: int | None = None,
    ) -> AsyncIterator[FoundCall]:
        """Tool calls in the sessions of a filter, newest session first; ``since``, ``until``: of the call."""
        found = calls.CallFilter(tool=tool, failed=failed, since=since, until=until)
        return calls.find_calls(self._viewed, wanted, found)

    # -- one session

    async def find_session_calls(
        self,
        session_id: str,
        *,
        tool: str | None = None,
        failed: bool | None = None,
        since: int | None = None,
        until: int | None = None,
    ) -> AsyncIterator[FoundCall]:
        """As `find_calls`, of one session."""
        state = await self._viewed.load_state(session_id)
        wanted = calls.CallFilter(tool=tool, failed=failed, since=since, until=until)
        async for found in calls.find_session_calls(self._viewed, state, wanted):
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

    async def read_turn(self, session_id: str, number: int) -> ConversationPage:
        """One turn with whole texts; a very long one goes on at ``after``.

        Raises InvalidRequestError: there is no such turn (as below).
        """
        state = await self._viewed.load_state(session_id)
        return await turn_pages.read_turn(self._viewed, state, number)

    async def find_turn(self, session_id: str, number: int) -> int:
        """The position at which a turn begins."""
        state = await self._viewed.load_state(session_id)
        return await turn_places.find_turn(self._viewed, state, number)

    async def read_message(self, session_id: str, position: int) -> WholeMessage:
        """One message with all its text.  Raises InvalidRequestError: there is none at this position."""
        state = await self._viewed.load_state(session_id)
        return await turn_pages.read_message(self._viewed, state, position)
