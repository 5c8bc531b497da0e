"""What nobody came back for is collected after a long time, and nothing else is."""

from dataclasses import dataclass, field

import pytest

from helix_temporal.activities.payloads import FAR, Payloads
from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.coldtier import V1Snapshots
from helix_temporal.errors import ArchiveAccessError, StoreUnavailableError, ThreadNotFoundError
from helix_temporal.models.maintenance import ABANDONED_AFTER
from helix_temporal.stores.protocols.threads import (
    ForkedThread,
    ForkThread,
    NoProgress,
    Progress,
    no_progress,
)
from helix_temporal.testing.builders import an_answer
from helix_temporal.testing.contracts._threads_base import LATER, Author, noise, result
from helix_temporal.testing.faults import BlobFault
from tests.unit.coldtier._interleave import at_every_call, ids, sound
from tests.unit.coldtier._tiers import Tiers
from tests.unit.coldtier._v1_files import KEY, anthropic, snapshot

LONG = ABANDONED_AFTER + 1
LENGTHS = pytest.mark.parametrize("copy", ["copy", "copy" * 50], ids=["plain", "longer than a key"])


@dataclass
class Clock:
    """The object store's."""

    now: float = 1_700_000_000.0

    def __call__(self) -> float:
        """Seconds since 1970."""
        return self.now


@dataclass
class Shelf:
    """Threads in a store whose clock can be moved.

    Attributes:
        copy: Id of the thread that `fork` makes.
    """

    copy: str = "copy"
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.tiers = Tiers(bucket=MemoryBlobs(self.clock))
        self.payloads = Payloads(self.tiers.threads.payloads)
        self.author = Author(self.tiers.threads, "t")

    async def collect(self, thread_id: str = "t") -> int:
        """As the maintenance worker does, on a worker that remembers nothing; how many objects went."""
        return (await self.tiers.worker().upkeep.collect_garbage(thread_id)).objects_deleted

    async def put(self, position: int = FAR, thread_id: str = "t") -> str:
        """Put a text aside."""
        return await self.payloads.put(thread_id, position, "text/m", "a long text")

    async def is_there(self, ref: str, thread_id: str = "t") -> bool:
        """Whether a text can be brought back."""
        try:
            return await self.payloads.get(thread_id, ref) == "a long text"
        except StoreUnavailableError:
            return False

    async def fork(self, progress: Progress = no_progress) -> ForkedThread:
        """Copy the thread, on a worker that remembers nothing."""
        request = ForkThread("t", self.copy, LATER, "forker")
        return await self.tiers.worker().fork(request, progress=progress)

    async def give_up_a_fork(self) -> list[str]:
        """All was copied, and the manifest never written; the keys of the copies."""
        layout = self.tiers.threads.layout
        key, before = layout.manifest_key(self.copy), 0 if layout.keys_name_thread(self.copy) else 1
        self.tiers.blobs.fail(BlobFault.NO_ACCESS, method="put", key_has=key, skip=before)
        with pytest.raises(ArchiveAccessError):
            await self.fork()
        return [key for key in await self.tiers.keys(self.copy) if key != "manifest"]

    async def is_whole(self) -> None:
        """The fork holds what its source does, and nothing that it names is missing."""
        await sound(self.tiers, self.copy)
        assert await ids(Author(self.tiers.worker(), self.copy)) == await ids(self.author)


async def a_shelf(copy: str = "copy") -> Shelf:
    """One thread at rest, with segments."""
    made = Shelf(copy)
    await made.author.open()
    await made.author.append(made.author.step(*noise(100), answer=None))
    await made.author.go_cold()
    return made


@pytest.fixture
async def shelf() -> Shelf:
    """One of the test's own."""
    return await a_shelf()


async def test_the_copies_of_a_fork_that_was_given_up_are_collected(shelf: Shelf) -> None:
    """Its thread has no manifest, so that nobody else would ever look at them."""
    left = await shelf.give_up_a_fork()
    shelf.clock.now += LONG
    assert await shelf.collect("copy") == len(left) > 0
    assert await shelf.tiers.keys("copy") == ["manifest"]
    with pytest.raises(ThreadNotFoundError):
        await shelf.tiers.worker().read_facts("copy")


@LENGTHS
async def test_the_maintenance_worker_comes_by_there(copy: str) -> None:
    """It goes from thread to thread, and this one is none."""
    shelf = await a_shelf(copy)
    await shelf.give_up_a_fork()
    part = int(shelf.tiers.threads.layout.thread_prefix(copy).split("/")[1], 16)
    assert copy in [each.thread_id async for each in shelf.tiers.threads.upkeep.list_archived(part)]


async def test_a_fork_that_may_be_under_way_is_let_alone(shelf: Shelf) -> None:
    """Its youngest object decides for all: what is old was copied first."""
    await shelf.give_up_a_fork()
    shelf.clock.now += LONG
    await shelf.put(thread_id="copy")
    shelf.clock.now += LONG - 2
    assert await shelf.collect("copy") == 0


async def test_a_fork_that_is_tried_again_after_its_collection_is_whole(shelf: Shelf) -> None:
    """Its retry remembers what it copied; that has other names now."""
    remembered = NoProgress()
    prefix = shelf.tiers.threads.layout.thread_prefix("copy")
    remembered.finished = frozenset(prefix + key for key in await shelf.give_up_a_fork())
    shelf.clock.now += LONG
    await shelf.collect("copy")
    await shelf.fork(remembered)
    await shelf.is_whole()


@LENGTHS
async def test_a_collection_at_every_step_of_a_fork(copy: str) -> None:
    """However old the store's clock makes the copies: the manifest never names what was deleted."""

    async def collect_all(made: Shelf) -> None:
        made.clock.now += LONG
        await made.collect(copy)

    async def is_whole(made: Shelf) -> None:
        await sound(made.tiers, copy)
        await made.collect(copy)
        await made.is_whole()

    steps = await at_every_call(
        lambda: a_shelf(copy),
        lambda made: made.tiers.blobs,
        lambda made: made.fork(),
        collect_all,
        is_whole,
    )
    assert steps >= 4


@LENGTHS
async def test_a_fork_at_every_step_of_a_collection(copy: str) -> None:
    """The fork is tried again while what its first attempt left is deleted."""

    async def make() -> Shelf:
        made = await a_shelf(copy)
        await made.give_up_a_fork()
        made.clock.now += LONG
        return made

    steps = await at_every_call(
        make,
        lambda made: made.tiers.blobs,
        lambda made: made.collect(copy),
        lambda made: made.fork(),
        lambda made: made.is_whole(),
    )
    assert steps >= 6


async def test_a_collection_twice_leaves_what_the_first_left(shelf: Shelf) -> None:
    """What says that nothing is there is no garbage, and no thread."""
    await shelf.give_up_a_fork()
    shelf.clock.now += LONG
    await shelf.collect("copy")
    shelf.clock.now += LONG
    assert await shelf.collect("copy") == 0
    ref = await shelf.put(thread_id="copy")
    shelf.clock.now += LONG
    assert await shelf.collect("copy") == 1
    assert not await shelf.is_there(ref, "copy")


async def test_a_version_1_snapshot_is_still_found_after_a_collection(shelf: Shelf) -> None:
    """A text was put aside for a thread that nobody had opened here yet, and was refused."""
    tiers = shelf.tiers
    tiers.legacy = V1Snapshots(tiers.blobs)
    await tiers.bucket.put(KEY, snapshot([anthropic(0), anthropic(1)]))
    old = Author(tiers.worker(), "t")
    await tiers.bucket.delete(tiers.threads.layout.manifest_key("t"))
    shelf.clock.now += LONG
    assert await shelf.collect() > 0
    assert (await old.open()).header.head.position == 2


async def test_a_text_whose_message_was_refused_is_collected(shelf: Shelf) -> None:
    """No step ever takes it, so that nobody else deletes it."""
    ref = await shelf.put()
    shelf.clock.now += LONG
    assert await shelf.collect() == 1
    assert not await shelf.is_there(ref)


async def test_a_text_that_was_put_aside_lately_is_kept(shelf: Shelf) -> None:
    """Its message may be on its way."""
    shelf.clock.now += LONG
    ref = await shelf.put()
    shelf.clock.now += ABANDONED_AFTER - 1
    assert await shelf.collect() == 0
    assert await shelf.is_there(ref)


async def test_an_old_text_is_kept_while_its_thread_is_in_use(shelf: Shelf) -> None:
    """Its message may wait for the turn under way."""
    ref = await shelf.put()
    shelf.clock.now += LONG
    shelf.author = shelf.author.later()
    await shelf.author.open()
    assert await shelf.collect() == 0
    assert await shelf.is_there(ref)


async def test_an_old_text_is_kept_where_its_thread_was_in_use_lately(shelf: Shelf) -> None:
    """The turn for which it waited may have ended a moment ago."""
    ref = await shelf.put()
    shelf.clock.now += LONG
    shelf.author = shelf.author.later()
    await shelf.author.open()
    await shelf.author.go_cold()
    assert await shelf.collect() == 0
    assert await shelf.is_there(ref)


async def test_a_result_is_kept_while_its_turn_goes_on(shelf: Shelf) -> None:
    """One tool has finished, another one waits for a person; meanwhile Redis lost the thread."""
    shelf.author = shelf.author.later()
    await shelf.author.open()
    await shelf.author.asks_for_tools()
    await shelf.author.flush()
    ref = await shelf.put(shelf.author.head.position)
    shelf.tiers.wipe()
    shelf.clock.now += LONG
    assert await shelf.collect() == 0
    assert await shelf.is_there(ref)


async def test_a_result_whose_step_is_finished_goes_at_once(shelf: Shelf) -> None:
    """It is in the thread."""
    shelf.author = shelf.author.later()
    await shelf.author.open()
    await shelf.author.asks_for_tools()
    ref = await shelf.put(shelf.author.head.position)
    await shelf.author.append(shelf.author.step(result(0), answer=an_answer("found")))
    await shelf.author.flush()
    await shelf.collect()
    assert not await shelf.is_there(ref)


async def test_a_text_for_a_thread_that_was_deleted_waits_for_its_new_beginning(shelf: Shelf) -> None:
    """The id may be used again: the text is put aside before the session opens the thread anew."""
    await shelf.tiers.worker().delete("t", shelf.author.epoch + 1)
    ref = await shelf.put()
    assert await shelf.collect() == 0
    assert await shelf.is_there(ref)
    shelf.clock.now += LONG
    assert await shelf.collect() == 1


async def test_a_deletion_leaves_no_text_behind(shelf: Shelf) -> None:
    """Deleted is deleted, not hidden."""
    ref = await shelf.put()
    await shelf.tiers.worker().delete("t", shelf.author.epoch + 1)
    assert not await shelf.is_there(ref)
    assert await shelf.tiers.keys() == ["manifest"]


async def test_a_store_that_does_not_date_its_objects_keeps_them(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown is not old."""
    ref = await shelf.put()
    shelf.clock.now += LONG
    monkeypatch.setattr(shelf.tiers.bucket, "_modified", _Nothing())
    assert await shelf.collect() == 0
    assert await shelf.is_there(ref)


class _Nothing(dict[str, float]):
    """Remembers nothing."""

    def __setitem__(self, key: str, value: float) -> None:
        """Forget it."""
