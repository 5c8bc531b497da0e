"""Locks in this process: for tests and for programs of one process; gone with it."""

import time
from collections.abc import Callable

from helix_temporal.models.store_calls import DEFAULT_TTL_MS, LockInfo
from helix_temporal.stores import locks as rules
from helix_temporal.stores.locks import Claim, LeaseRow, Leases, RowLeases, RowRule


class MemoryLocks(RowLeases):
    """`LockManager` in a dict.  Excludes the tasks of one process only; restarts forget it.

    Args:
        default_ttl_ms: How long a lease lasts if the caller does not say.
        clock: Seconds since 1970.
    """

    def __init__(
        self, *, default_ttl_ms: int = DEFAULT_TTL_MS, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(default_ttl_ms=default_ttl_ms, clock=clock)
        self._rows: dict[str, LeaseRow] = {}

    # -- for tests

    def clear(self) -> None:
        """End all leases.  Their tokens are remembered: the next ones are higher."""
        for key, row in self._rows.items():
            self._rows[key] = rules.row_without_lease(row)

    def get_active_locks(self) -> list[LockInfo]:
        """The leases that have not ended, by key."""
        now = self._read_clock()
        return [row.info for _, row in sorted(self._rows.items()) if row.held(now)]

    # -- the operations; none awaits, so each is atomic on its event loop

    async def _load_row(self, key: str) -> LeaseRow | None:
        return self._rows.get(key)

    async def _change_row(self, key: str, rule: RowRule) -> LeaseRow | None:
        row = rule(self._rows.get(key), self._read_clock())
        if row is not None:
            self._rows[key] = row
        return row


class NoOpLockManager(Leases):
    """`LockManager` that excludes nobody: every acquire succeeds, with a higher token than before.

    For those who have one process only and want no lease; writes under its tokens are fenced as ever.
    """

    def __init__(self, *, default_ttl_ms: int = DEFAULT_TTL_MS) -> None:
        super().__init__(default_ttl_ms=default_ttl_ms)
        self._last: LeaseRow | None = None

    async def _take_lease(self, wanted: Claim) -> LockInfo | None:
        # One counter for all keys: a higher number does no harm.
        before = None if self._last is None else rules.row_without_lease(self._last)
        self._last = rules.take_lease(before, wanted, time.time_ns() // 1000)
        return None if self._last is None else self._last.info

    async def _extend_lease(self, key: str, token: int, ttl_ms: int | None) -> bool:  # noqa: ARG002
        return True

    async def _release_lease(self, key: str, token: int) -> bool:  # noqa: ARG002
        return True

    async def _is_held(self, key: str) -> bool:  # noqa: ARG002
        return False
