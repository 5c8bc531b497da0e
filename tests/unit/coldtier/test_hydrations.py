"""Of several calls that find a thread cold at once, one reads the archive."""

import asyncio

from helix_temporal.blobs import Blob
from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.models.stored_messages import Head
from helix_temporal.stores.protocols.hot import HotHeader
from helix_temporal.testing.contracts._threads_base import Author
from tests.unit.coldtier._tiers import Tiers


class SlowBlobs(MemoryBlobs):
    """A bucket whose answers take a round of the event loop."""

    async def get(self, key: str) -> Blob | None:
        """As `MemoryBlobs.get`, later."""
        await asyncio.sleep(0)
        return await super().get(key)


def head_of(header: HotHeader | None) -> Head:
    """Where a thread that was found stands."""
    assert header is not None
    return header.head


async def cold_thread(tiers: Tiers) -> Author:
    """A thread of ten turns that only the archive has."""
    author = await tiers.author()
    await author.turns(10)
    await author.go_cold()
    tiers.blobs.forget()
    return author


async def test_readers_of_one_cold_thread_share_its_hydration() -> None:
    """Each gets the thread, and the archive is asked as if by one."""
    tiers = Tiers(bucket=SlowBlobs())
    author = await cold_thread(tiers)
    alone = await author.threads.hydrate("t", author.epoch)
    once = len(tiers.blobs.calls)
    await author.go_cold()
    tiers.blobs.forget()
    found = await asyncio.gather(*(author.threads.hydrate("t", author.epoch) for _ in range(20)))
    assert len(tiers.blobs.calls) == once
    assert [head_of(each) for each in found] == [head_of(alone)] * len(found)


async def test_one_that_needs_more_than_what_is_hot_reads_on() -> None:
    """The whole thread is not what somebody else has made hot of it."""
    tiers = Tiers(bucket=SlowBlobs())
    author = await cold_thread(tiers)
    part, whole = await asyncio.gather(
        author.threads.hydrate("t", author.epoch), tiers.threads.hydrate_whole("t", author.epoch)
    )
    assert head_of(part) == whole.head == author.head
    assert whole.base.position == 0


async def test_a_hydration_that_fails_is_tried_by_the_next() -> None:
    """Those who waited do not share its error."""
    tiers = Tiers(bucket=SlowBlobs())
    author = await cold_thread(tiers)
    first = asyncio.create_task(author.threads.hydrate("t", author.epoch))
    second = asyncio.create_task(author.threads.hydrate("t", author.epoch))
    await asyncio.sleep(0)
    first.cancel()
    assert head_of(await second) == author.head
