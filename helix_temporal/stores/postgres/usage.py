"""Usage in PostgreSQL: one row an entry, pages and totals by index."""

from collections.abc import Sequence
from typing import Any, Final

from helix_temporal.models.usage import UsageEntry
from helix_temporal.stores import usage as rules
from helix_temporal.stores.checksums import verify_checksum, with_checksum
from helix_temporal.stores.postgres.database import DatabaseOrPool, as_database
from helix_temporal.stores.postgres.queries import DEFAULT_PREFIX, Queries
from helix_temporal.stores.usage import UsageFilter, UsageLedger

_BETWEEN: Final = "\x01"
"""Between session and entry id in the key: no id has it, and it sorts before all that ids have."""


class PostgresUsage(UsageLedger):
    """`UsageStore` on PostgreSQL.  Made by `PostgresBackend`, or over your own `PostgresDatabase` or pool.

    Args:
        database: A `PostgresDatabase`, or an asyncpg pool; whoever made it closes it.
        table_prefix: What the names of all tables begin with; see `PostgresMigrations`.

    Raises:
        InvalidConfigError: The prefix is not acceptable.
    """

    def __init__(self, database: DatabaseOrPool, *, table_prefix: str = DEFAULT_PREFIX) -> None:
        self._database, self._queries = as_database(database), Queries(table_prefix)

    async def _add_entry(self, entry: UsageEntry, body: bytes) -> bool:
        added = await self._database.fetchval(
            self._queries["usage_add"],
            f"{entry.session_id}{_BETWEEN}{entry.id}",
            entry.session_id,
            entry.agent_type,
            entry.kind,
            entry.run_id,
            entry.step_count,
            entry.timestamp,
            with_checksum(body),
        )
        return added is not None

    async def _of_session(
        self, session_id: str, wanted: UsageFilter, limit: int | None, offset: int
    ) -> list[UsageEntry]:
        found, _ = await self._session_page(session_id, wanted, limit, offset)
        return found

    async def _find_entries(self, session_id: str, entry_ids: Sequence[str]) -> list[UsageEntry]:
        keys = [f"{session_id}{_BETWEEN}{each}" for each in entry_ids]
        rows = await self._database.fetch(self._queries["usage_by_id"], keys)
        where = "an entry of usage in PostgreSQL"
        return [rules.from_body(verify_checksum(row["body"], where), where) for row in rows]

    async def _of_all(self, wanted: UsageFilter, limit: int, offset: int) -> tuple[list[UsageEntry], int]:
        if wanted.session_id is not None:
            return await self._session_page(wanted.session_id, wanted, limit, offset)
        if wanted.agent_type is not None:
            return await self._read_page("usage_page_agent", wanted, limit, offset, wanted.agent_type)
        return await self._read_page("usage_page_all", wanted, limit, offset)

    async def _has_entries(self, session_id: str) -> bool:
        return bool(await self._database.fetchval(self._queries["usage_any"], session_id))

    async def _drop_entries(self, session_id: str) -> bool:
        return bool(await self._database.fetchval(self._queries["usage_delete"], session_id))

    async def _session_page(
        self, session_id: str, wanted: UsageFilter, limit: int | None, offset: int
    ) -> tuple[list[UsageEntry], int]:
        steps = (wanted.first_step, wanted.last_step)
        return await self._read_page(
            "usage_page_session", wanted, limit, offset, session_id, *steps, wanted.agent_type
        )

    async def _read_page(
        self, name: str, wanted: UsageFilter, limit: int | None, offset: int, *scope: Any
    ) -> tuple[list[UsageEntry], int]:
        kinds = None if wanted.kinds is None else sorted(wanted.kinds)
        rows = await self._database.fetch(
            self._queries[name], kinds, wanted.run_id, wanted.since, wanted.until, limit, offset, *scope
        )
        where = "an entry of usage in PostgreSQL"
        bodies = [verify_checksum(row["body"], where) for row in rows if row["body"] is not None]
        return [rules.from_body(body, where) for body in bodies], rows[0]["total"]
