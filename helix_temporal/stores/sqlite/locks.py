"""Locks in SQLite: a row a key, by the machine's clock."""

import time
from collections.abc import Callable
from dataclasses import asdict

import orjson

from helix_temporal.models.base import dump_json
from helix_temporal.models.store_calls import DEFAULT_TTL_MS
from helix_temporal.stores.checksums import verify_checksum, with_checksum
from helix_temporal.stores.locks import LeaseRow, RowLeases, RowRule
from helix_temporal.stores.sqlite.connection import Database, Statements


class SqliteLocks(RowLeases):
    """`LockManager` for the processes of one machine.  Made by `SqliteBackend`.

    A row stays when its lease ends, so tokens survive restarts and power cuts.  All processes go by the clock
    of their one machine; if that is set back, leases last longer, and tokens grow all the same.

    Args:
        database: Where they are.
        default_ttl_ms: How long a lease lasts if the caller does not say.
        clock: Seconds since 1970.
    """

    def __init__(
        self,
        database: Database,
        *,
        default_ttl_ms: int = DEFAULT_TTL_MS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(default_ttl_ms=default_ttl_ms, clock=clock)
        self._database = database

    async def _load_row(self, key: str) -> LeaseRow | None:
        return await _read_row(self._database, key)

    async def _change_row(self, key: str, rule: RowRule) -> LeaseRow | None:
        async with self._database.write() as on:
            row = rule(await _read_row(on, key), self._read_clock())
            if row is not None:
                lease = with_checksum(dump_json(asdict(row)), key)
                await on.fetch("lock_put", {"key": key, "lease": lease})
            return row


async def _read_row(on: Statements | Database, key: str) -> LeaseRow | None:
    row = await on.fetch_one("lock_row", {"key": key})
    if row is None:
        return None
    return LeaseRow(**orjson.loads(verify_checksum(row["lease"], f"lock {key!r} in SQLite", key)))
