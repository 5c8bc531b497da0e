"""Payloads on their way, in SQLite."""

import time
from collections.abc import Callable
from typing import Final

from helix_temporal.stores.checksums import verify_checksum, with_checksum
from helix_temporal.stores.sqlite.connection import Database

_PURGED_AT_ONCE: Final = 20


class SqlitePayloads:
    """`PayloadStore` on SQLite.  Made by `SqliteBackend`.

    Args:
        database: Where they are.
        clock: Seconds since 1970.
    """

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock

    async def put_payload(self, thread_id: str, key: str, data: bytes, ttl: float) -> None:
        """See `PayloadStore.put_payload`."""
        now = self._now_millis()
        row = {
            "thread_id": thread_id,
            "key": key,
            "expires_at": now + max(int(ttl * 1000), 1),
            "body": with_checksum(data, thread_id, key),
        }
        async with self._database.write() as on:
            await on.fetch("payload_put", row)
            # Nobody else removes what has expired; each new one makes room for itself.
            await on.fetch("payload_purge", {"now": now, "limit": _PURGED_AT_ONCE})

    async def get_payload(self, thread_id: str, key: str) -> bytes | None:
        """See `PayloadStore.get_payload`."""
        values = {"thread_id": thread_id, "key": key, "now": self._now_millis()}
        row = await self._database.fetch_one("payload_get", values)
        where = f"payload {key!r} of thread {thread_id!r} in SQLite"
        return None if row is None else verify_checksum(row["body"], where, thread_id, key)

    async def delete_payload(self, thread_id: str, key: str) -> None:
        """See `PayloadStore.delete_payload`."""
        async with self._database.write() as on:
            await on.fetch("payload_delete", {"thread_id": thread_id, "key": key})

    async def delete_payloads(self, thread_id: str) -> None:
        """See `PayloadStore.delete_payloads`."""
        async with self._database.write(erases=True) as on:
            await on.fetch("payloads_delete", {"thread_id": thread_id})

    def _now_millis(self) -> int:
        return int(self._clock() * 1000)
