"""Payloads on their way, in PostgreSQL: rows with a time to live."""

from typing import Final

from helix_temporal.stores.checksums import verify_checksum, with_checksum
from helix_temporal.stores.postgres.database import DatabaseOrPool, as_database
from helix_temporal.stores.postgres.queries import DEFAULT_PREFIX, Queries

_PURGED_AT_ONCE: Final = 20


class PostgresPayloads:
    """`PayloadStore` on PostgreSQL.  Made by `PostgresBackend`, or over your own `PostgresDatabase` or pool.

    Args:
        database: A `PostgresDatabase`, or an asyncpg pool; whoever made it closes it.
        table_prefix: What the names of all tables begin with; see `PostgresMigrations`.

    Raises:
        InvalidConfigError: The prefix is not acceptable.
    """

    def __init__(self, database: DatabaseOrPool, *, table_prefix: str = DEFAULT_PREFIX) -> None:
        self._database, self._queries = as_database(database), Queries(table_prefix)

    async def put_payload(self, thread_id: str, key: str, data: bytes, ttl: float) -> None:
        """See `PayloadStore.put_payload`."""
        milliseconds = max(int(ttl * 1000), 1)
        await self._database.execute(
            self._queries["payload_put"], thread_id, key, with_checksum(data, thread_id, key), milliseconds
        )
        # Nobody else removes what has expired; each new one makes room for itself.
        await self._database.execute(self._queries["payload_purge"], _PURGED_AT_ONCE)

    async def get_payload(self, thread_id: str, key: str) -> bytes | None:
        """See `PayloadStore.get_payload`."""
        data: bytes | None = await self._database.fetchval(self._queries["payload_get"], thread_id, key)
        where = f"payload {key!r} of thread {thread_id!r} in PostgreSQL"
        return None if data is None else verify_checksum(data, where, thread_id, key)

    async def delete_payload(self, thread_id: str, key: str) -> None:
        """See `PayloadStore.delete_payload`."""
        await self._database.execute(self._queries["payload_delete"], thread_id, key)

    async def delete_payloads(self, thread_id: str) -> None:
        """See `PayloadStore.delete_payloads`."""
        await self._database.execute(self._queries["payloads_delete"], thread_id)
