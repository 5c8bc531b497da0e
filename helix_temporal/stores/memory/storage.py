"""The façade's sessions, kept in this process."""

from helix_temporal.models.facade import StoredSession
from helix_temporal.models.ids import validate_id
from helix_temporal.stores.memory.locks import MemoryLocks


class MemorySessionStorage:
    """`SessionStorage` in a dict.

    Attributes:
        locks: For the leases of turns.
    """

    def __init__(self) -> None:
        self.locks = MemoryLocks()
        self._sessions: dict[str, bytes] = {}

    async def save(self, session: StoredSession) -> None:
        """See `SessionStorage.save`."""
        self._sessions[session.id] = session.model_dump_json().encode()

    async def load(self, session_id: str) -> StoredSession | None:
        """See `SessionStorage.load`."""
        found = self._sessions.get(validate_id(session_id, "session id"))
        return None if found is None else StoredSession.model_validate_json(found)

    async def delete(self, session_id: str) -> None:
        """See `SessionStorage.delete`."""
        self._sessions.pop(validate_id(session_id, "session id"), None)

    async def list(self) -> list[str]:
        """See `SessionStorage.list`."""
        return sorted(self._sessions)

    def clear(self) -> None:
        """Forget all sessions, for tests."""
        self._sessions.clear()

    @property
    def size(self) -> int:
        """How many sessions there are, for tests."""
        return len(self._sessions)
