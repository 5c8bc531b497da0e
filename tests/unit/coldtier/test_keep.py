"""A pass over a part of the archive looks at what has changed, and at nothing else."""

import asyncio
import hashlib
import itertools
from dataclasses import replace

import pytest

from helix_temporal.blobs import Blob
from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.coldtier.format import encode_index
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.models.maintenance import ABANDONED_AFTER, KeepPartInput, KeepResult
from helix_temporal.stores.protocols.threads import ArchivedThread, Maintenance
from helix_temporal.stores.threads.keep import keep_part
from helix_temporal.testing.contracts._threads_base import Author, noise
from helix_temporal.testing.faults import BlobFault
from tests.unit.coldtier._tiers import Tiers
from tests.unit.coldtier.test_abandoned import Clock

PART = 7


def find_names(count: int, prefix: str = "t") -> list[str]:
    """Ids of threads that lie in one part."""
    names = (f"{prefix}{number}" for number in itertools.count())
    inside = (each for each in names if hashlib.sha256(each.encode()).digest()[0] == PART)
    return list(itertools.islice(inside, count))


class Shelf:
    """Archived threads in one part, in a store whose clock can be moved."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.tiers = Tiers(bucket=MemoryBlobs(self.clock))
        self.authors: list[Author] = []

    async def fill(self, count: int) -> None:
        """So many threads, each with an archive of its own."""
        for name in find_names(count):
            author = await self.tiers.author(name)
            await author.turn()
            await author.go_cold()
            self.authors.append(author)
        self.clock.now += 3600

    async def keep(self, since: float | None = None, **fields: object) -> KeepResult:
        """As the maintenance worker does; then an hour passes."""
        request = KeepPartInput(part=PART, since=since).model_copy(update=fields)
        found = await keep_part(self.tiers.worker().upkeep, request)
        self.clock.now += 3600
        return found


@pytest.fixture
async def shelf() -> Shelf:
    """Twenty threads that have been kept once."""
    made = Shelf()
    await made.fill(20)
    return made


async def test_threads_at_rest_cost_their_place_in_a_listing(shelf: Shelf) -> None:
    """No object of theirs is read."""
    first = await shelf.keep()
    assert (first.seen, first.failures) == (20, 0)
    shelf.tiers.blobs.forget()
    second = await shelf.keep(first.since)
    assert (second.seen, second.failures) == (0, 0)
    # The clock is a put, a list and a delete.
    assert [call.method for call in shelf.tiers.blobs.calls] == ["put", "list", "delete", "list"]


async def test_a_thread_that_has_changed_is_looked_at_once(shelf: Shelf) -> None:
    """It costs one read where there is nothing to do."""
    since = (await shelf.keep()).since
    changed = shelf.authors[3].later()
    await changed.open()
    await changed.turn()
    await changed.go_cold()
    shelf.clock.now += 60
    shelf.tiers.blobs.forget()
    found = await shelf.keep(since)
    assert (found.seen, found.failures) == (1, 0)
    assert shelf.tiers.blobs.count("get") == 1
    assert (await shelf.keep(found.since)).seen == 0


async def test_what_a_dying_writer_left_is_deleted(shelf: Shelf) -> None:
    """It is in no manifest, and the thread has not changed otherwise."""
    since = (await shelf.keep()).since
    layout, name = shelf.tiers.threads.layout, shelf.authors[5].thread_id
    stray = f"{layout.thread_prefix(name)}seg/{0:020}-{1:020}.g0.{'0' * 32}"
    await shelf.tiers.bucket.put(stray, b"left by a crash")
    found = await shelf.keep(since)
    assert (found.seen, found.objects_deleted) == (1, 1)
    assert await shelf.tiers.bucket.get(stray) is None


async def test_a_text_that_nobody_takes_is_deleted_once_it_is_old(shelf: Shelf) -> None:
    """Its age alone tells it: nothing is written when it has come."""
    since = (await shelf.keep()).since
    payload = f"{shelf.tiers.threads.layout.payload_prefix(shelf.authors[0].thread_id)}{99:020}/text"
    await shelf.tiers.bucket.put(payload, b"a long text")
    young = await shelf.keep(since)
    assert (young.seen, young.objects_deleted) == (1, 0)
    shelf.clock.now += ABANDONED_AFTER
    old = await shelf.keep(young.since)
    assert (old.seen, old.objects_deleted) == (1, 1)


async def test_small_segments_are_merged(shelf: Shelf) -> None:
    """And what they were is deleted."""
    author = shelf.authors[1].later()
    await author.open()
    for number in range(20):
        await author.append(author.step(*noise(60, prefix=f"{number}-"), answer=None))
        await author.flush()
    await author.go_cold()
    before = await author.everything()
    found = await shelf.keep()
    assert found.segments_merged > 0
    assert found.objects_deleted > 0
    assert await author.everything() == before
    assert (await shelf.keep()).segments_merged == 0


async def test_a_thread_that_fails_is_named_and_stops_no_other(shelf: Shelf) -> None:
    """Damaged ones as well as such that the store does not answer for."""
    name, damaged = shelf.authors[2].thread_id, shelf.authors[4].thread_id
    layout = shelf.tiers.threads.layout
    await shelf.tiers.bucket.put(layout.manifest_key(damaged), b"damaged by somebody")

    shelf.tiers.blobs.fail(BlobFault.ERROR_BEFORE, method="get", key_has=layout.thread_prefix(name), times=99)
    found = await shelf.keep()
    assert (found.seen, found.failures) == (20, 2)
    assert set(found.failed) == {name, damaged}


async def list_in_index(shelf: Shelf, author: Author) -> str:
    """Give a thread an archive with an index; the key of the index."""
    writer = author.later()
    await writer.open()
    for number in range(3):
        await writer.append(writer.step(*noise(60, prefix=f"{number}-"), answer=None))
        await writer.flush()
    await writer.go_cold()
    manifest = await shelf.tiers.manifest(author.thread_id)
    ref, data = encode_index(manifest.segments, manifest.gen)
    key = shelf.tiers.threads.layout.index_key(author.thread_id, ref)
    await shelf.tiers.bucket.put(key, data)
    await shelf.tiers.forge(replace(manifest, index=ref, segments=()))
    return key


async def test_a_thread_whose_index_is_missing_is_named_and_stops_no_other(
    shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says what to do; a lifecycle rule of the bucket may have deleted it."""
    name = shelf.authors[2].thread_id
    await shelf.tiers.bucket.delete(await list_in_index(shelf, shelf.authors[2]))
    found = await shelf.keep()
    assert (found.seen, found.failures, found.failed) == (20, 1, (name,))
    assert found.since is not None
    assert f"helix-temporal thread verify {name}" in caplog.text


async def test_an_index_that_is_replaced_while_it_is_read_is_no_damage(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A live session compacts meanwhile: what the new manifest names is read."""
    author = shelf.authors[2]
    key = await list_in_index(shelf, author)
    gone: list[str] = []
    get = shelf.tiers.blobs.get

    async def get_once_gone(wanted: str) -> Blob | None:
        if wanted == key and not gone:
            gone.append(wanted)
            return None
        return await get(wanted)

    monkeypatch.setattr(shelf.tiers.blobs, "get", get_once_gone)
    found = await shelf.keep()
    assert (found.seen, found.failures, gone) == (20, 0, [key])


async def test_a_long_id_whose_manifest_is_damaged_is_told(shelf: Shelf) -> None:
    """Its key holds a hash of the id, and only the manifest says whose it is."""
    name = next(each for each in find_names(1, "long" * 60))
    author = await shelf.tiers.author(name)
    await author.turn()
    await author.go_cold()
    key = shelf.tiers.threads.layout.manifest_key(name)
    await shelf.tiers.bucket.put(key, b"damaged by somebody")
    found = await shelf.keep()
    assert (found.seen, found.failures) == (21, 1)
    assert key.split("/")[-2] in found.failed[0]


async def test_a_bug_in_the_upkeep_of_one_thread_stops_no_other(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it raises; the log has where."""
    worker, name = shelf.tiers.worker(), shelf.authors[2].thread_id
    keep = worker.upkeep.keep

    async def keep_or_fail(thread: ArchivedThread, *args: object, **fields: object) -> Maintenance:
        if thread.thread_id == name:
            raise RuntimeError("a bug")
        return await keep(thread, *args, **fields)  # type: ignore[arg-type]

    monkeypatch.setattr(worker.upkeep, "keep", keep_or_fail)
    found = await keep_part(worker.upkeep, KeepPartInput(part=PART))
    assert (found.seen, found.failed) == (20, (name,))
    assert "RuntimeError: a bug" in caplog.text
    assert "keep_or_fail" in caplog.text


async def test_a_cancelled_pass_ends(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts no thread as failed, and goes on with none."""
    worker, begun = shelf.tiers.worker(), asyncio.Event()

    async def hang(thread: ArchivedThread, *args: object, **fields: object) -> Maintenance:
        begun.set()
        await asyncio.sleep(3600)
        raise AssertionError

    monkeypatch.setattr(worker.upkeep, "keep", hang)
    running = asyncio.create_task(keep_part(worker.upkeep, KeepPartInput(part=PART)))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_pass_ends_where_the_archive_is_away(shelf: Shelf) -> None:
    """It does not ask for each thread again and again."""
    shelf.tiers.blobs.plan = lambda call: BlobFault.ERROR_BEFORE if call.method == "get" else None
    with pytest.raises(StoreUnavailableError):
        await shelf.keep()


async def test_all_is_audited_that_is_looked_at(shelf: Shelf) -> None:
    """Damage is told, and deletes nothing."""
    author = shelf.authors[6]
    manifest = await shelf.tiers.manifest(author.thread_id)
    await shelf.tiers.forge(replace(manifest, committed=manifest.head.position + 1))
    found = await shelf.keep(audit=True)
    assert (found.damaged, found.failed) in {((author.thread_id,), ()), ((), (author.thread_id,))}
