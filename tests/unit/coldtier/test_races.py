"""Garbage collection, compaction, flush, open and fork get into each other's way and nothing is lost."""

import contextlib
from dataclasses import dataclass
from operator import methodcaller
from typing import Any

import pytest

from helix_temporal.errors import FencedError, HeadMovedError
from helix_temporal.models.stored_messages import Head
from helix_temporal.stores.protocols.threads import ForkThread, ReadPage
from helix_temporal.testing.contracts._threads_base import LATER, Author, noise
from helix_temporal.testing.faults import FaultyBlobs
from tests.unit.coldtier._interleave import at_every_call, ids, sound
from tests.unit.coldtier._tiers import Tiers

pytestmark = pytest.mark.slow


@dataclass
class Bench:
    """A thread with segments, orphans and something that is hot only."""

    tiers: Tiers
    author: Author
    expected: list[str]

    @property
    def blobs(self) -> FaultyBlobs:
        """Where both operations go."""
        return self.tiers.blobs

    async def flush(self) -> None:
        """Archive what is hot, as a worker that remembers nothing; who comes too late is told so."""
        with contextlib.suppress(FencedError, HeadMovedError):
            await self.tiers.elsewhere(self.author).flush()

    async def gc(self) -> object:
        """Collect garbage."""
        return await self.tiers.worker().upkeep.collect_garbage("t")

    async def compact(self) -> object:
        """Merge."""
        return await self.tiers.worker().upkeep.compact("t")

    async def fork(self, target: str = "copy", epoch: int = LATER) -> object:
        """Copy the thread."""
        return await self.tiers.worker().fork(ForkThread("t", target, epoch, "forker"))

    async def read(self) -> object:
        """Read all of it from the archive."""
        page = await self.tiers.worker().read(ReadPage("t", limit=10_000, committed_only=False))
        assert [message.id for message in page.messages] == self.expected
        return page

    async def look(self) -> object:
        """What a step sees whose window reaches further back than the newest part that is hot."""
        head, count = self.author.head, len(self.expected)
        view = await self.tiers.worker().step_view(
            "t", self.author.epoch, head, after=0, limit=count, max_bytes=1 << 30, ids=count
        )
        assert [message.id for message in view.before] == self.expected
        return view

    async def audit(self) -> object:
        """Verify all of it."""
        await sound(self.tiers)
        return self

    async def rewind(self) -> object:
        """Cut inside a segment, as the next execution."""
        later = self.tiers.elsewhere(self.author).later()
        return await later.open(rewind_to=Head(position=100, last_id=self.expected[99]))

    async def reopen(self) -> object:
        """Open, as the next execution."""
        return await self.tiers.elsewhere(self.author).later().open()


async def bench() -> Bench:
    """Segments, some of them merged and left behind, a large slice, and messages not yet archived."""
    tiers = Tiers()
    author = await tiers.author()
    for number in range(20):
        await author.append(author.step(*noise(60, prefix=f"{number}-"), answer=None, commits=True))
        await author.flush()
        if number == 10:
            await tiers.threads.upkeep.compact("t")
    for version in range(2):
        slice_bytes = noise(1, size=300_000 + version)[0].body
        await author.threads.save_slice("t", author.epoch, slice_bytes, version)
        await author.flush()
    await author.append(author.step(*noise(60, prefix="hot"), answer=None, commits=True))
    return Bench(tiers, author, await ids(author))


async def cold_bench() -> Bench:
    """The same, with nothing hot."""
    made = await bench()
    await made.author.go_cold()
    return made


async def is_whole(made: Bench) -> None:
    """All messages are there, also after the next collection, and nothing is left lying about."""
    await made.flush()
    await made.gc()
    made.tiers.wipe()
    await sound(made.tiers)
    assert await ids(made.tiers.elsewhere(made.author)) == made.expected


async def race(slow: str, fast: str, check: Any = is_whole, make: Any = bench, at_least: int = 3) -> None:
    """Stop ``slow`` before each of its calls while ``fast`` runs."""
    calls = await at_every_call(make, lambda made: made.blobs, methodcaller(slow), methodcaller(fast), check)
    assert calls >= at_least


@pytest.mark.parametrize("fast", ["gc", "compact", "flush", "fork"])
async def test_a_slow_flush(fast: str) -> None:
    """A stalled writer's objects are either named by its manifest or by nothing."""
    await race("flush", fast)


@pytest.mark.parametrize("fast", ["flush", "compact", "fork", "gc"])
async def test_a_slow_collection(fast: str) -> None:
    """It deletes only what nobody can come to name."""
    await race("gc", fast)


@pytest.mark.parametrize("fast", ["gc", "flush", "fork", "compact"])
async def test_a_slow_compaction(fast: str) -> None:
    """Whoever commits first, the messages are the same."""
    await race("compact", fast)


@pytest.mark.parametrize("fast", ["gc", "compact"])
async def test_a_slow_reader(fast: str) -> None:
    """A page is read again from the manifest that took the place of the one it began with."""

    async def compact_and_collect(made: Bench) -> None:
        await made.compact()
        await made.gc()

    calls = await at_every_call(
        cold_bench, lambda made: made.blobs, lambda made: made.read(), compact_and_collect, is_whole
    )
    assert calls >= 3


@pytest.mark.parametrize("slow", ["look", "audit"])
async def test_a_slow_look(slow: str) -> None:
    """A step and an audit find the archive under the names that it has now, and no damage."""

    async def compact_and_collect(made: Bench) -> None:
        await made.compact()
        await made.gc()

    calls = await at_every_call(
        cold_bench, lambda made: made.blobs, methodcaller(slow), compact_and_collect, is_whole
    )
    assert calls >= 5


async def test_a_slow_fork() -> None:
    """The source is compacted and collected while its segments are copied: the copy is whole."""

    async def compact_and_collect(made: Bench) -> None:
        await made.flush()
        await made.compact()
        await made.gc()

    async def copy_is_whole(made: Bench) -> None:
        copy = Author(made.tiers.worker(), "copy")
        found = await ids(copy)
        assert found == made.expected[: len(found)]
        assert len(found) == len(made.expected)
        await sound(made.tiers, "copy")
        await made.tiers.worker().upkeep.collect_garbage("copy")
        await sound(made.tiers, "copy")

    calls = await at_every_call(
        bench, lambda made: made.blobs, lambda made: made.fork(), compact_and_collect, copy_is_whole
    )
    assert calls >= 5


@pytest.mark.parametrize("fast", ["gc", "compact"])
async def test_a_slow_rewind(fast: str) -> None:
    """The open cuts a segment that is merged or collected meanwhile."""

    async def is_cut(made: Bench) -> None:
        later = made.tiers.elsewhere(made.author).later()
        assert await ids(later) == made.expected[:100]
        await later.flush()
        await made.gc()
        made.tiers.wipe()
        await sound(made.tiers)
        assert await ids(later) == made.expected[:100]

    await race("rewind", fast, is_cut, cold_bench)


@pytest.mark.parametrize("fast", ["flush", "gc", "compact"])
async def test_a_slow_open(fast: str) -> None:
    """The next execution takes over while the old one's flush and the maintenance worker are at work."""

    async def is_open(made: Bench) -> None:
        later = made.tiers.elsewhere(made.author).later()
        assert (await later.facts()).epoch == later.epoch
        assert await ids(later) == made.expected
        made.tiers.wipe()
        assert await ids(later) == made.expected

    await race("reopen", fast, is_open)


@pytest.mark.parametrize("hot_is", ["as it was before its open", "lost"])
async def test_a_slow_open_of_an_execution_whose_hot_thread_is_yet_to_come(hot_is: str) -> None:
    """It has swapped the manifest alone; what it is told is stored outlives a later epoch's open."""

    async def make() -> Bench:
        made = await bench()
        await made.flush()
        backup = made.tiers.hot.backup()
        made.author = made.tiers.elsewhere(made.author).later(by=1000)
        await made.author.open()
        made.tiers.hot.restore({} if hot_is == "lost" else backup)
        return made

    async def open_and_append(made: Bench) -> None:
        with contextlib.suppress(FencedError):
            await made.author.open()
            await made.author.append(made.author.step(*noise(1, prefix="late"), answer=None, commits=True))
            made.expected.append("late0")

    async def is_kept(made: Bench) -> None:
        later = made.tiers.elsewhere(made.author).later(by=1_000_000_000)
        await later.open()
        assert await ids(later) == made.expected

    calls = await at_every_call(make, lambda made: made.blobs, Bench.reopen, open_and_append, is_kept)
    assert calls >= 3


async def test_a_collection_of_a_tombstone_and_a_fork_into_it() -> None:
    """Copies are named by the new thread's generation, so that the collector's list never hits them."""

    async def make() -> Bench:
        made = await bench()
        await made.fork()
        copies = [
            (info.key, await made.tiers.bucket.get(info.key))
            async for info in made.tiers.bucket.list(made.tiers.threads.layout.thread_prefix("copy"))
            if "/seg/" in info.key
        ]
        await made.tiers.worker().delete("copy", LATER)
        for key, blob in copies:  # what a first attempt of another fork left there
            assert blob is not None
            await made.tiers.bucket.put(key, blob.data)
        return made

    async def copy_is_whole(made: Bench) -> None:
        assert await ids(Author(made.tiers.worker(), "copy")) == made.expected
        await sound(made.tiers, "copy")

    calls = await at_every_call(
        make,
        lambda made: made.blobs,
        lambda made: made.tiers.worker().upkeep.collect_garbage("copy"),
        lambda made: made.fork(epoch=LATER + 5),
        copy_is_whole,
    )
    assert calls >= 4


async def test_collection_leaves_exactly_what_is_named() -> None:
    """And counts what it deleted."""
    made = await bench()
    await made.flush()
    before = await made.tiers.keys()
    done = await made.tiers.threads.upkeep.collect_garbage("t")
    after = await made.tiers.keys()
    refs = await made.tiers.worker()._archive.list_segments(await made.tiers.manifest())
    assert done.objects_deleted == len(before) - len(after) > 0
    assert len(after) == len(refs) + 2  # the manifest and the slice
    assert (await made.tiers.threads.upkeep.collect_garbage("t")).objects_deleted == 0


async def test_deletion_at_every_step_of_a_flush() -> None:
    """A zombie's flush never brings a deleted thread back."""

    async def delete(made: Bench) -> None:
        await made.tiers.worker().delete("t", made.author.epoch)

    async def is_gone(made: Bench) -> None:
        assert (await made.tiers.manifest()).deleted
        await made.gc()
        assert await made.tiers.keys() == ["manifest"]

    assert await at_every_call(bench, lambda made: made.blobs, Bench.flush, delete, is_gone) >= 3
