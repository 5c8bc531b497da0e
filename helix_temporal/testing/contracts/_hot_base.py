"""What the parts of the hot tier's contract share."""

from collections.abc import Awaitable, Callable

import pytest

from helix_temporal.models.stored_messages import Head, StoredMessage
from helix_temporal.stores.protocols.hot import HotTier
from helix_temporal.testing.builders import an_id

TimeToLive = Callable[[str], Awaitable[float | None]]
"""Seconds until a hot thread expires; None if it never does, or is not there."""

MIB = 1 << 20


class HotTierFixtures:
    """Fixtures; a backend overrides the first two."""

    @pytest.fixture
    async def store(self) -> HotTier:
        """An empty store."""
        raise NotImplementedError("bind the contract: override the fixture `store`")

    @pytest.fixture
    async def time_to_live(self, store: HotTier) -> TimeToLive:
        """How to ask this store when a hot thread expires."""
        raise NotImplementedError("bind the contract: override the fixture `time_to_live`")

    @pytest.fixture
    def thread_id(self) -> str:
        """An id of this test's own."""
        return f"thread-{an_id()}"


async def stored(store: HotTier, thread_id: str) -> tuple[StoredMessage, ...]:
    """All messages that are held of a thread."""
    snapshot = await store.read_snapshot(thread_id, 0)
    assert snapshot is not None, f"{thread_id!r} is not hot"
    return snapshot.messages


async def image(store: HotTier, thread_id: str) -> object:
    """Everything that can be read of a thread, to see that nothing changed."""
    return await store.read_snapshot(thread_id, 0)


def at(messages: tuple[StoredMessage, ...], position: int) -> Head:
    """The head after the first ``position`` of all of a thread's messages."""
    return Head(position=position, last_id=messages[position - 1].id if position else "")
