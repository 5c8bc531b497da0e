"""Where the façade keeps whole sessions: four methods, easy to write for a store of one's own."""

from typing import Protocol

from helix_temporal.models.facade import StoredSession


class SessionStorage(Protocol):
    """Keeps sessions by id.  The last writer wins; the façade takes a lease around each turn.

    All methods raise `StoreUnavailableError` if the store does not answer, and `InvalidIdError` for an
    id that is refused.
    """

    async def save(self, session: StoredSession) -> None:
        """Insert or replace, in one step: a reader sees the old one or the new one."""
        ...

    async def load(self, session_id: str) -> StoredSession | None:
        """The session; None if there is none."""
        ...

    async def delete(self, session_id: str) -> None:
        """Remove it; nothing if there is none."""
        ...

    async def list(self) -> list[str]:
        """Ids of all sessions, in order."""
        ...
