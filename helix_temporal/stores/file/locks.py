"""Locks in a directory: one document a key, changed under its file lock, by the machine's clock."""

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Final

from helix_temporal.errors import StoreCorruptError
from helix_temporal.models.store_calls import DEFAULT_TTL_MS, LockInfo
from helix_temporal.stores import locks as rules
from helix_temporal.stores.file._documents import DocumentChange, Documents
from helix_temporal.stores.file._format import Part, Parts
from helix_temporal.stores.locks import Claim, LeaseRow, Leases

_LEASE: Final = "lease"


class FileLocks(Leases):
    """`LockManager` for the processes of one machine.  Made by `FileBackend`.

    A document stays when its lease ends, so tokens survive restarts and power cuts.  All processes go by
    the clock of their one machine; if that is set back, leases last longer, and tokens grow all the same.

    Args:
        default_ttl_ms: How long a lease lasts if the caller does not say.
        clock: Seconds since 1970.
    """

    def __init__(
        self,
        documents: Documents,
        *,
        default_ttl_ms: int = DEFAULT_TTL_MS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(default_ttl_ms=default_ttl_ms)
        self._documents, self._clock = documents, clock

    async def _take(self, wanted: Claim) -> LockInfo | None:
        row = await self._change(wanted.key, lambda row, now: rules.take(row, wanted, now))
        return None if row is None else row.info

    async def _extend(self, key: str, token: int, ttl_ms: int | None) -> bool:
        return await self._change(key, lambda row, now: rules.extend(row, token, ttl_ms, now)) is not None

    async def _free(self, key: str, token: int) -> bool:
        return await self._change(key, lambda row, now: rules.free(row, token, now)) is not None

    async def _held(self, key: str) -> bool:
        row = _row(key, await self._documents.read(key))
        return row is not None and row.held(self._now())

    async def _change(
        self, key: str, rule: Callable[[LeaseRow | None, int], LeaseRow | None]
    ) -> LeaseRow | None:
        def decide(parts: Parts) -> DocumentChange[LeaseRow | None]:
            row = rule(_row(key, parts), self._now())
            return DocumentChange(row, None if row is None else {_LEASE: Part(asdict(row), b"")})

        return await self._documents.change(key, decide)

    def _now(self) -> int:
        return int(self._clock() * 1_000_000)


def _row(key: str, parts: Parts) -> LeaseRow | None:
    if not parts:
        return None
    try:
        return LeaseRow(**parts[_LEASE].header)
    except (KeyError, TypeError) as error:
        raise StoreCorruptError(f"lock {key!r}: its document holds no lease; restore it") from error
