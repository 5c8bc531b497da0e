"""Locks in PostgreSQL: one row a key, one statement an operation, by the server's clock."""

from typing import Any

from helix_temporal.models.store_calls import DEFAULT_TTL_MS, LockInfo
from helix_temporal.stores.locks import Claim, Leases
from helix_temporal.stores.postgres.database import DatabaseOrPool, as_database
from helix_temporal.stores.postgres.queries import DEFAULT_PREFIX, Queries


class PostgresLocks(Leases):
    """`LockManager` on PostgreSQL.  Made by `PostgresBackend`, or over your own `PostgresDatabase` or pool.

    A lease is a row, not an advisory lock: it belongs to no connection, so it outlives the one that took it
    and works through a pooler in transaction mode.  Each operation is one statement, in a transaction of
    its own.

    Args:
        database: A `PostgresDatabase`, or an asyncpg pool; whoever made it closes it.
        table_prefix: What the names of all tables begin with; see `PostgresMigrations`.
        default_ttl_ms: How long a lease lasts if the caller does not say.

    Raises:
        InvalidConfigError: The prefix or the time is not acceptable.
    """

    def __init__(
        self,
        database: DatabaseOrPool,
        *,
        table_prefix: str = DEFAULT_PREFIX,
        default_ttl_ms: int = DEFAULT_TTL_MS,
    ) -> None:
        super().__init__(default_ttl_ms=default_ttl_ms)
        self._database, self._queries = as_database(database), Queries(table_prefix)

    async def _take_lease(self, wanted: Claim) -> LockInfo | None:
        row = await self._database.fetchrow(
            self._queries["lock_take"], wanted.key, wanted.owner, wanted.claim, wanted.ttl_ms
        )
        if row is None:
            return None
        return LockInfo(
            key=wanted.key,
            owner=wanted.owner,
            fencing_token=row["fencing_token"],
            ttl_ms=wanted.ttl_ms,
            acquired_at=row["acquired_at"],
            expires_at=row["expires_at"],
        )

    async def _extend_lease(self, key: str, token: int, ttl_ms: int | None) -> bool:
        return await self._fetch_one("lock_extend", key, token, ttl_ms) is not None

    async def _release_lease(self, key: str, token: int) -> bool:
        return await self._fetch_one("lock_free", key, token) is not None

    async def _is_held(self, key: str) -> bool:
        return bool(await self._fetch_one("lock_held", key))

    async def _fetch_one(self, name: str, *args: Any) -> Any:
        return await self._database.fetchval(self._queries[name], *args)
