"""Payloads on their way, in Redis or Valkey: a hash with a time to live for each thread, beside it."""

from helix_temporal.models.ids import encode_id
from helix_temporal.stores.checksums import verify_checksum, with_checksum
from helix_temporal.stores.redis.connection import RedisConnection
from helix_temporal.stores.redis.scripts import PAYLOAD_PUT
from helix_temporal.stores.threads.operations import other_id_error


class RedisPayloads:
    """`PayloadStore` on Redis or Valkey.  Made by `RedisBackend`.

    All of a thread live as long as the newest one.  A server that evicts keys with a time to live
    (``volatile-*``) may drop them early.
    """

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection

    async def put_payload(self, thread_id: str, key: str, data: bytes, ttl: float) -> None:
        """See `PayloadStore.put_payload`."""
        milliseconds = max(int(ttl * 1000), 1)
        value = with_checksum(_owner_prefix(thread_id, key) + data)
        await self._connection.run_script(
            PAYLOAD_PUT, [self._payloads_key(thread_id)], encode_id(key), value, milliseconds
        )

    async def get_payload(self, thread_id: str, key: str) -> bytes | None:
        """See `PayloadStore.get_payload`."""
        value = await self._connection.send_command("HGET", self._payloads_key(thread_id), encode_id(key))
        if value is None:
            return None
        value = verify_checksum(value, self._connection.place_of(self._payloads_key(thread_id)))
        owner = _owner_prefix(thread_id, key)
        if not value.startswith(owner):
            raise other_id_error(thread_id)
        return bytes(value[len(owner) :])

    async def delete_payload(self, thread_id: str, key: str) -> None:
        """See `PayloadStore.delete_payload`."""
        await self._connection.send_command("HDEL", self._payloads_key(thread_id), encode_id(key))

    async def delete_payloads(self, thread_id: str) -> None:
        """See `PayloadStore.delete_payloads`."""
        await self._connection.send_command("UNLINK", self._payloads_key(thread_id))

    def _payloads_key(self, thread_id: str) -> str:
        return f"{self._connection.key_of(thread_id)}:payloads"


def _owner_prefix(thread_id: str, key: str) -> bytes:
    """Long ids are hashed in the key: the originals stand before the data."""
    parts = [thread_id.encode(), key.encode()]
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)
