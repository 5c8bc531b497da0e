"""Payloads on their way, in Redis or Valkey: strings with a time to live, beside their thread."""

from helix_temporal.models.ids import encode_id
from helix_temporal.stores import _decide
from helix_temporal.stores.redis._connection import Connection


class RedisPayloads:
    """`PayloadStore` on Redis or Valkey.  Made by `RedisBackend`.

    A server that evicts keys with a time to live (``volatile-*``) may drop a payload early.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def put_payload(self, thread_id: str, key: str, data: bytes, ttl: float) -> None:
        """See `PayloadStore.put_payload`."""
        milliseconds = max(int(ttl * 1000), 1)
        name = self._name(thread_id, key)
        await self._connection.command("SET", name, _owner(thread_id, key) + data, "PX", milliseconds)

    async def get_payload(self, thread_id: str, key: str) -> bytes | None:
        """See `PayloadStore.get_payload`."""
        value = await self._connection.command("GET", self._name(thread_id, key))
        if value is None:
            return None
        owner = _owner(thread_id, key)
        if not value.startswith(owner):
            raise _decide.other_id(thread_id)
        return bytes(value[len(owner) :])

    async def delete_payload(self, thread_id: str, key: str) -> None:
        """See `PayloadStore.delete_payload`."""
        await self._connection.command("UNLINK", self._name(thread_id, key))

    def _name(self, thread_id: str, key: str) -> str:
        return f"{self._connection.key(thread_id)}:payload:{encode_id(key)}"


def _owner(thread_id: str, key: str) -> bytes:
    """Long ids are hashed in the key: the originals stand before the data."""
    parts = [thread_id.encode(), key.encode()]
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)
