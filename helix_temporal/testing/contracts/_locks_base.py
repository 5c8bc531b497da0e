"""What the parts of the locks' contract share.

Leases that must end in a test last 80 ms; those that must not, 30 s; those that are refreshed in time, long
enough for a pause of a second: a slow machine fails nothing.
"""

import asyncio
from typing import Any, Final

import pytest

from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.protocols.locks import Lock, LockManager
from helix_temporal.stores.protocols.threads import ThreadStore
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.testing.builders import an_id

SHORT: Final = 80
"""Milliseconds of a lease that is to end by itself."""

YEAR_2017: Final = 1_500_000_000_000_000

ODD_KEYS: Final = (
    "a", "A", "a:b", "a/b", "a\\b", "../a", "..", "*", "a?[b]", "{x}", "a}b", "{}", "%2e%2e", "a b", "'; --",
    "é", "e\u0301", "🔒", "lock", "locks", "CON", "x" * 256, "x" * 255 + "y", "é" * 200,
)  # fmt: skip

BAD_KEYS: Final = ("", "x" * 257, "a\x00b", "a\nb", "\ud800", None, 5, b"x", True)
BAD_TTLS: Final = (0, -1, True, 1.5, float("nan"), float("inf"), "30000", 10**12, 2**63, 10**5000)
BAD_TOKENS: Final = (0, -1, True, 1.0, "7", None, 2**63, 10**5000)


def shown(value: object) -> str:
    """Short, and no integer of thousands of digits."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"{value.bit_length()}bits"
    return ascii(value)


async def ended(locks: LockManager, key: str) -> None:
    """Wait until nobody holds the key."""
    async with asyncio.timeout(30):
        while await locks.is_locked(key):  # noqa: ASYNC110 — the store does not call back
            await asyncio.sleep(0.005)


async def taken(locks: LockManager, key: str, **options: Any) -> Lock:
    """A lease that nobody else has."""
    lock = await locks.acquire(key, **options)
    assert lock is not None, f"{key!r} is held"
    return lock


class LocksFixtures:
    """What a binding brings."""

    @pytest.fixture
    async def locks(self) -> LockManager:
        """A manager on an empty store."""
        raise NotImplementedError("bind the contract: override the fixture `locks`")

    @pytest.fixture
    async def another(self) -> LockManager:
        """A second manager on the same store."""
        raise NotImplementedError("bind the contract: override the fixture `another`")

    @pytest.fixture
    async def threads(self) -> ThreadStore:
        """Where holders write under their tokens."""
        return HotThreads(MemoryThreads())

    @pytest.fixture
    def key(self) -> str:
        """A key of this test's own."""
        return f"key-{an_id()}"
