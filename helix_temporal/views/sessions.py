"""Sessions as people see them: lists, one session, its conversation, its state, its tree."""

from collections.abc import AsyncIterator, Callable, Mapping

from helix_temporal.agents import Agent
from helix_temporal.client import ReadableStores
from helix_temporal.models.streams import StoredChunk
from helix_temporal.models.states import SessionState
from helix_temporal.views.filters import SessionFilter
from helix_temporal.views.models import (
    CheckpointList,
    ConversationPage,
    ConversationTurn,
    FoundCall,
    ModelContext,
    SessionBranch,
    SessionList,
    SessionOverview,
    SessionView,
    StateAt,
    StateComparison,
    ThreadPlace,
    UsageSums,
    WholeMessage,
)

Admits = Callable[[SessionOverview], bool]


class SessionViews:
    """Reads for people; changes nothing and wakes no session.

    Args:
        stores: A `helix_temporal.backends.Backends`, or `helix_temporal.client.SessionStores`.
        admits: Which sessions the viewer may see: others are as if they were not there, in lists and by id.
        agents: By name, for the instructions and tools of a context; without one these parts are left out.
    """

    def __init__(
        self, stores: ReadableStores, *, admits: Admits | None = None, agents: Mapping[str, Agent] | None = None
    ) -> None: ...

    async def list_sessions(
        self, wanted: SessionFilter = SessionFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> SessionList:
        """A page, newest change first.  Raises InvalidCursorError, InvalidRequestError."""
        ...

    def iterate_sessions(self, wanted: SessionFilter = SessionFilter()) -> AsyncIterator[SessionOverview]:
        """All of them; memory stays flat."""
        ...

    async def load_state(self, session_id: str) -> SessionState: ...

    async def get_session(self, session_id: str) -> SessionView:
        """Raises SessionNotFoundError: there is none, or the viewer may not see it (as all below)."""
        ...

    async def get_usage(self, session_id: str, *, descendants: bool = False) -> UsageSums: ...

    async def read_turns(
        self, session_id: str, *, before: int | None = None, after: int | None = None, limit: int = 20
    ) -> ConversationPage:
        """The newest turns, with the one under way; or those before (from) a position; long texts are cut."""
        ...

    async def read_turn(self, session_id: str, number: int) -> ConversationPage:
        """One turn with whole texts; its page has one turn.  Raises InvalidRequestError: no such turn."""
        ...

    async def find_turn(self, session_id: str, number: int) -> int:
        """The position at which a turn begins, without walking all runs."""
        ...

    async def read_message(self, session_id: str, position: int) -> WholeMessage: ...

    async def get_context(self, session_id: str, position: int) -> ModelContext:
        """What the model was given that gave the message at this position."""
        ...

    async def get_state(self, session_id: str, checkpoint_id: str | None = None) -> StateAt: ...

    async def compare_states(
        self, session_id: str, before: str, after: str | None = None
    ) -> StateComparison: ...

    async def list_checkpoints(
        self, session_id: str, *, limit: int = 50, cursor: str | None = None
    ) -> CheckpointList: ...

    async def get_tree(self, session_id: str) -> SessionBranch: ...

    async def list_runs(self, session_id: str, *, limit: int = 50, cursor: str | None = None) -> ...: ...

    async def get_place(self, session_id: str) -> ThreadPlace: ...

    def find_calls(
        self, wanted: SessionFilter, *, tool: str | None = None, failed: bool | None = None,
        since: int | None = None, until: int | None = None,
    ) -> AsyncIterator[FoundCall]:
        """Calls in the sessions of a filter, newest session first."""
        ...

    async def find_live_place(self, session_id: str) -> int:
        """The stream's sequence after which the turn under way begins; of an idle session its newest."""
        ...

    def follow_session(self, session_id: str, after: int | None = None) -> AsyncIterator[StoredChunk]:
        """Chunks of the session's stream, also of turns that begin later, until it is deleted."""
        ...
