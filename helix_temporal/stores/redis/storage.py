"""The façade's sessions in Redis or Valkey: one JSON string a session."""

from contextlib import suppress

from pydantic import ValidationError

from helix_temporal.errors import StoreCorruptError
from helix_temporal.models.facade import StoredSession
from helix_temporal.models.ids import encode_id, validate_id
from helix_temporal.stores.redis.connection import RedisConnection
from helix_temporal.stores.redis.locks import RedisLocks


class RedisSessionStorage:
    """`SessionStorage` on Redis or Valkey; acknowledged sessions are as safe as its persistence.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://``.
        prefix: What all keys start with.

    Attributes:
        locks: For the leases of turns.

    Raises:
        InvalidConfigError: The prefix or the URL is not acceptable.
    """

    def __init__(self, url: str, *, prefix: str = "session:") -> None:
        self._connection = RedisConnection(url, prefix=prefix, cluster=False, timeout=5.0, max_connections=16)
        self._prefix = prefix
        self.locks = RedisLocks(self._connection)

    async def save(self, session: StoredSession) -> None:
        """See `SessionStorage.save`."""
        await self._connection.send_command(
            "SET", self._session_key(session.id), session.model_dump_json().encode()
        )

    async def load(self, session_id: str) -> StoredSession | None:
        """See `SessionStorage.load`.

        Raises:
            StoreCorruptError: The value is none of ours, or damaged.
        """
        key = self._session_key(validate_id(session_id, "session id"))
        found = await self._connection.send_command("GET", key)
        session = None if found is None else _parse_session(key, found)
        # Long ids are hashed in the key: the one inside decides.
        return session if session is not None and session.id == session_id else None

    async def delete(self, session_id: str) -> None:
        """See `SessionStorage.delete`."""
        await self._connection.send_command(
            "UNLINK", self._session_key(validate_id(session_id, "session id"))
        )

    async def list(self) -> list[str]:
        """See `SessionStorage.list`; values that are none of ours, or damaged, are passed over."""
        found, cursor = set[str](), 0
        while True:
            reply = await self._connection.send_command(
                "SCAN", cursor, "MATCH", f"{self._prefix}facade:*", "COUNT", 500
            )
            for key in reply[1]:
                value = await self._connection.send_command("GET", key)
                if value is not None:
                    with suppress(StoreCorruptError):
                        found.add(_parse_session(key, value).id)
            cursor = int(reply[0])
            if cursor == 0:
                return sorted(found)

    async def close(self) -> None:
        """Close all connections."""
        await self._connection.close()

    def _session_key(self, session_id: str) -> str:
        return f"{self._prefix}facade:{encode_id(session_id)}"


def _parse_session(key: str | bytes, value: bytes) -> StoredSession:
    try:
        return StoredSession.model_validate_json(value)
    except ValidationError:
        raise StoreCorruptError(f"{key!r}: no session is in it; restore or remove the key") from None
