"""Which sessions a viewer may see; a hidden session looks like one that does not exist."""

import inspect
from typing import Final

from helix_temporal.activities.reads import state_from_slice
from helix_temporal.errors import (
    InvalidConfigError,
    InvalidIdError,
    SessionNotFoundError,
)
from helix_temporal.models.ids import validate_id
from helix_temporal.models.states import SessionState, SessionStatus
from helix_temporal.models.store_calls import SessionSummary
from helix_temporal.stores.protocols.readable import ReadableStores
from helix_temporal.stores.protocols.streams import StreamStore
from helix_temporal.stores.protocols.threads import find_facts
from helix_temporal.views.filters import EVERY_SESSION, Admits, SessionFilter, admits_by
from helix_temporal.views.models import SessionOverview
from helix_temporal.views.patience import choose_patience
from helix_temporal.views.problems import UNREADABLE
from helix_temporal.views.reading import stores_for_reading

_PARENTS: Final = 1_000
"""Parents that one list remembers, so that memory stays flat."""


def session_not_found_error(session_id: str) -> SessionNotFoundError:
    """The error for a session that is not there, and for one that the viewer may not see."""
    return SessionNotFoundError(
        f"session {session_id!r} is not there: it was never begun, or no worker has begun it yet, or it was "
        "deleted, or is not yours to see; check its id, and that the stores are those of its workers",
        session_id=session_id,
    )


def overview_of(session: SessionSummary | SessionState) -> SessionOverview:
    """What a list shows of a session."""
    # Of a thread alone, which has no times, nobody knows whether its session has ended.
    is_unknown = not session.created_at and session.status is SessionStatus.ACTIVE
    return SessionOverview(
        session_id=session.session_id,
        agent=session.agent_type,
        user_id=session.user_id,
        title=session.title,
        status=None if is_unknown else session.status,
        steps=session.step_count,
        tags=session.tags,
        metadata=session.metadata,
        parent_session_id=session.parent_session_id,
        expires_at=session.expires_at,
        created_at=session.created_at,
        updated_at=session.updated_at,
    )


class ViewedSessions:
    """The stores that are read, and the states of those sessions that the viewer may see.

    Attributes:
        threads: As the workers have them, but without their repairs.
        usage: As the workers have it.
        sessions: None where the workers have no session store.
        streams: None where none is known.
        reads: What stores can be asked for so that they leave out what the viewer may not see.

    Raises:
        InvalidConfigError: See `filters.admits_by`.
    """

    def __init__(self, stores: ReadableStores, admits: Admits | SessionFilter | None) -> None:
        if isinstance(admits, SessionFilter):
            self._admits = None if admits == EVERY_SESSION else admits_by(admits)
        else:
            self._admits = admits
        reading = stores_for_reading(stores, choose_patience(stores), with_lost_rows=self.admits_all)
        self.threads: Final = reading.threads
        self.usage: Final = reading.usage
        self.sessions: Final = reading.sessions
        self.streams: Final = _find_streams(stores)
        self.reads: Final = admits if isinstance(admits, SessionFilter) else EVERY_SESSION

    @property
    def admits_all(self) -> bool:
        """The viewer may see every session."""
        return self._admits is None

    def is_admitted(self, overview: SessionOverview) -> bool:
        """Whether the viewer may see the session.

        Raises:
            InvalidConfigError: The function that says so is async: what it returns would be true for all.
        """
        if self._admits is None:
            return True
        answer: object = self._admits(overview)
        if inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                answer.close()  # or Python warns that nobody awaited it
            raise InvalidConfigError("the function that says which sessions are seen must not be async")
        return bool(answer)

    async def load_state(self, session_id: str) -> SessionState:
        """A session's state; of one that has only a thread, what that tells.

        Raises:
            SessionNotFoundError: It is not there, or the viewer may not see it.
            StoreUnavailableError: A store does not answer.
        """
        state = await self.find_state(session_id)
        if state is None:
            raise session_not_found_error(session_id)
        return state

    async def find_state(self, session_id: str) -> SessionState | None:
        """As `load_state`; None where that raises `SessionNotFoundError`."""
        state = await self.find_stored_state(session_id)
        return None if state is None or not self.is_admitted(overview_of(state)) else state

    async def find_stored_state(self, session_id: str) -> SessionState | None:
        """As `find_state`, whoever may see it: for counting those that may not be seen."""
        try:
            validate_id(session_id, "session id")
        except InvalidIdError:
            return None
        state = None if self.sessions is None else await self.sessions.load_state(session_id)
        # The archive's time, or its being away, would tell an unknown id from a hidden one: who may see some
        # sessions alone sees those that the session store has, as in lists.
        if state is not None or not (self.sessions is None or self.admits_all):
            return state
        facts = await find_facts(self.threads, session_id)
        return None if facts is None else state_from_slice(session_id, facts)

    async def hide_unseen_id(self, session_id: str | None) -> str | None:
        """The id of another session that one tells of; None where the viewer may not see that one.

        Of one that is damaged nobody can tell who may.
        """
        if session_id is None or self._admits is None:
            return session_id
        try:
            return None if await self.find_state(session_id) is None else session_id
        except UNREADABLE:
            return None

    async def show_overview(
        self, session: SessionSummary | SessionState, parents: dict[str, str | None] | None = None
    ) -> SessionOverview:
        """What a list shows of a session, without its parent where the viewer may not see that.

        Args:
            session: One that may be seen.
            parents: Remembers which parents may be seen, for the sessions of one list.
        """
        overview, known = overview_of(session), {} if parents is None else parents
        parent = overview.parent_session_id
        if parent is None or self._admits is None:
            return overview
        if parent not in known:
            if len(known) >= _PARENTS:
                known.clear()
            known[parent] = await self.hide_unseen_id(parent)
        return overview.model_copy(update={"parent_session_id": known[parent]})


def _find_streams(stores: ReadableStores) -> StreamStore | None:
    return getattr(stores, "streams", None)
