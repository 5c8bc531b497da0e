"""Locks in SQLite: a row a key, by the machine's clock."""

import time
from collections.abc import Callable
from dataclasses import asdict

import orjson

from helix_temporal.models.base import dump_json
from helix_temporal.models.store_calls import DEFAULT_TTL_MS, LockInfo
from helix_temporal.stores import locks as rules
from helix_temporal.stores.checksums import verify_checksum, with_checksum
from helix_temporal.stores.locks import Claim, LeaseRow, Leases
from helix_temporal.stores.sqlite.connection import Database, Statements


class SqliteLocks(Leases):
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
        super().__init__(default_ttl_ms=default_ttl_ms)
        self._database, self._clock = database, clock

    async def _take_lease(self, wanted: Claim) -> LockInfo | None:
        row = await self._change_row(wanted.key, lambda row, now: rules.take_lease(row, wanted, now))
        return None if row is None else row.info

    async def _extend_lease(self, key: str, token: int, ttl_ms: int | None) -> bool:
        return (
            await self._change_row(key, lambda row, now: rules.extend_lease(row, token, ttl_ms, now))
            is not None
        )

    async def _release_lease(self, key: str, token: int) -> bool:
        return await self._change_row(key, lambda row, now: rules.release_lease(row, token, now)) is not None

    async def _is_held(self, key: str) -> bool:
        row = await _read_row(self._database, key)
        return row is not None and row.held(self._now_millis())

    async def _change_row(
        self, key: str, rule: Callable[[LeaseRow | None, int], LeaseRow | None]
    ) -> LeaseRow | None:
        async with self._database.write() as on:
            row = rule(await _read_row(on, key), self._now_millis())
            if row is not None:
                lease = with_checksum(dump_json(asdict(row)), key)
                await on.fetch("lock_put", {"key": key, "lease": lease})
            return row

    def _now_millis(self) -> int:
        return int(self._clock() * 1_000_000)


async def _read_row(on: Statements | Database, key: str) -> LeaseRow | None:
    row = await on.fetch_one("lock_row", {"key": key})
    if row is None:
        return None
    return LeaseRow(**orjson.loads(verify_checksum(row["lease"], f"lock {key!r} in SQLite", key)))
