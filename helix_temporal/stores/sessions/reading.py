"""The session store for who only looks at it: what it has lost is read, and not made again."""

from helix_temporal.models.ids import validate_id
from helix_temporal.models.states import SessionState
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.stores.protocols.threads import ThreadStore
from helix_temporal.stores.sessions.decisions import decode_model
from helix_temporal.stores.sessions.outlines import read_outline
from helix_temporal.stores.sessions.store import RowSessions


class ReadSessions(RowSessions):
    """A `RowSessions` that changes nothing by reading; it is not asked for messages.

    Args:
        store: Whose rows are read.
        threads: Where the outline of a session lies whose row is lost; they must not repair either.  None: a
            session without a row is not there.
    """

    def __init__(self, store: RowSessions, threads: ThreadStore | None) -> None:
        super().__init__(store.loop.rows)
        self._outlined_in = threads

    async def load_state(self, session_id: str) -> SessionState | None:
        """As `SessionStore.load_state`; of a lost row what the thread's outline tells."""
        view = await self.loop.view_rows(validate_id(session_id, "session id"))
        if view.state is not None:
            return decode_model(SessionState, view.state, f"session {session_id!r}: state")
        if self._outlined_in is None:
            return None
        outline = await read_outline(self._outlined_in, session_id, view)
        return None if outline is None else outline.helix_session


def sessions_for_reading(store: SessionStore | None, threads: ThreadStore | None) -> SessionStore | None:
    """The same sessions for who only looks at them; another one's store is taken as it is."""
    return ReadSessions(store, threads) if isinstance(store, RowSessions) else store
