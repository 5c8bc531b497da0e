"""All threads are verified, beside whatever goes on, and each kind of damage is found and named."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from helix_temporal.errors import ArchiveAccessError, InvalidCursorError, StoreUnavailableError
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.protocols.threads import ReadPage
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.stores.threads.verification import (
    DataSubset,
    ThreadVerification,
    VerifiedThread,
    parse_data_subset,
)
from helix_temporal.testing.contracts._threads_base import Author, noise
from helix_temporal.testing.faults import BlobCall, BlobFault
from tests.unit.coldtier._tiers import Tiers

NAMES = [f"t{number}" for number in range(12)]


def verification(tiers: Tiers, subset: DataSubset = DataSubset()) -> ThreadVerification:  # noqa: B008 (frozen)
    """Of a process that remembers nothing."""
    worker = tiers.worker()
    return ThreadVerification(tiers.hot, worker, worker.upkeep, subset=subset)


async def verify_all(
    tiers: Tiers,
    place: str | None = None,
    subset: DataSubset = DataSubset(),  # noqa: B008 (frozen)
) -> dict[str, VerifiedThread]:
    """By thread; a thread that comes twice is an error."""
    found = [each async for each in verification(tiers, subset).verify_all(place)]
    made = {each.thread_id: each for each in found}
    assert len(made) == len(found)
    return made


@pytest.fixture
async def tiers() -> Tiers:
    """Twelve cold threads with segments, and one that is hot, with a message that no archive has."""
    made = Tiers()
    for name in NAMES:
        author = await made.author(name)
        await append_noise(author, "a")
        await append_noise(author, "b")
        await author.go_cold()
    hot = await made.author("hot")
    await append_noise(hot, "a")
    await hot.turn()
    return made


async def append_noise(author: Author, prefix: str) -> None:
    """Sixty messages, which are archived."""
    await author.append(author.step(*noise(60, prefix=prefix), answer=None))
    await author.flush()


async def segment_of(tiers: Tiers, thread_id: str) -> str:
    """The key of a thread's first segment."""
    prefix = tiers.threads.layout.thread_prefix(thread_id)
    return next(prefix + each for each in await tiers.keys(thread_id) if each.startswith("seg/"))


async def test_every_thread_is_verified_once(tiers: Tiers) -> None:
    """Cold ones and hot ones, which are listed by both stores."""
    found = await verify_all(tiers)
    assert sorted(found) == sorted([*NAMES, "hot"])
    assert {each.outcome for each in found.values()} == {"sound"}
    assert found["hot"].unarchived > 0
    assert all(each.bytes_read > 0 for each in found.values())


async def flip(tiers: Tiers, key: str) -> None:
    """One byte in the middle of an object becomes another one."""
    blob = await tiers.bucket.get(key)
    assert blob is not None
    at = len(blob.data) // 2
    await tiers.bucket.put(key, blob.data[:at] + bytes([blob.data[at] ^ 1]) + blob.data[at + 1 :])


async def shorten(tiers: Tiers, key: str) -> None:
    """An object ends too early."""
    blob = await tiers.bucket.get(key)
    assert blob is not None
    await tiers.bucket.put(key, blob.data[:-7])


async def remove(tiers: Tiers, key: str) -> None:
    """An object is gone."""
    await tiers.bucket.delete(key)


Damage = Callable[[Tiers, str], Awaitable[None]]


@pytest.mark.parametrize(
    ("damage", "place", "said"),
    [
        (remove, "segment", "is named by the manifest and missing"),
        (flip, "segment", "checksum does not match"),
        (shorten, "segment", "expected"),
        (flip, "manifest", "manifest of thread 't5'"),
        (shorten, "manifest", "manifest of thread 't5'"),
    ],
)
async def test_damage_is_named_and_the_others_go_on(
    tiers: Tiers, damage: Damage, place: str, said: str
) -> None:
    """One damaged thread of a million must neither stop the rest nor go unnoticed."""
    key = await segment_of(tiers, "t5") if place == "segment" else tiers.threads.layout.manifest_key("t5")
    await damage(tiers, key)
    found = await verify_all(tiers)
    assert [each for each in found if found[each].outcome != "sound"] == ["t5"]
    assert said in " ".join(found["t5"].problems)
    assert len(found) == len(NAMES) + 1


@pytest.mark.parametrize(("damage", "found_without_data"), [(remove, True), (shorten, True), (flip, False)])
async def test_without_data_an_object_must_be_there_with_its_length(
    tiers: Tiers, damage: Damage, found_without_data: bool
) -> None:
    """That costs one listing; what is in it is for the part whose data is read."""
    await damage(tiers, await segment_of(tiers, "t5"))
    tiers.blobs.forget()
    found = await verify_all(tiers, subset=DataSubset(0.0, 0.0))
    assert (found["t5"].outcome == "damaged") is found_without_data
    assert tiers.blobs.count("get") < 2 * len(found) + 8


async def test_an_archive_that_lost_what_was_seen_in_it_is_damage(tiers: Tiers) -> None:
    """A bucket that was emptied has nothing to be listed: the hot store knows better."""
    for info in [each async for each in tiers.bucket.list(tiers.threads.layout.thread_prefix("hot"))]:
        await tiers.bucket.delete(info.key)
    found = await verify_all(tiers)
    assert found["hot"].outcome == "damaged"
    assert "ColdRegressedError" in found["hot"].problems[0]


async def test_parts_of_the_data_make_up_all_of_it(tiers: Tiers) -> None:
    """A thirtieth each day has read everything after thirty days, and nothing twice."""
    read = [
        {name for name, each in (await verify_all(tiers, subset=parse_data_subset(part))).items()
         if each.bytes_read}
        for part in ("1/3", "2/3", "3/3")
    ]  # fmt: skip
    assert set.union(*read) >= set(NAMES)
    assert sum(map(len, read)) == len(set.union(*read))


async def test_no_more_data_is_read_than_was_asked_for(tiers: Tiers) -> None:
    """Traffic has a price; the thread that passes the bound is read to its end."""
    found = await verify_all(tiers, subset=DataSubset(most=1))
    assert len([each for each in found.values() if each.bytes_read]) <= 1
    assert {each.outcome for each in found.values()} == {"sound"}


@pytest.mark.parametrize("text", ["0/3", "4/3", "101%", "x", "-5%", "5 GB", ""])
def test_a_subset_that_is_none_is_refused(text: str) -> None:
    """A typing error must not read as nothing to verify."""
    with pytest.raises(ValueError, match="is expected"):
        parse_data_subset(text)


async def test_a_pass_goes_on_where_another_one_stopped(tiers: Tiers) -> None:
    """A pass over a million threads takes hours, and somebody will stop it."""
    whole = [each async for each in verification(tiers).verify_all()]
    middle = whole[4].place
    rest = [each async for each in verification(tiers).verify_all(middle)]
    assert rest == whole[5:]
    with pytest.raises(InvalidCursorError, match="no place to go on from"):
        await verify_all(tiers, "nonsense/")


async def test_a_deleted_thread_is_no_damage(tiers: Tiers) -> None:
    """Its tombstone stays in the archive."""
    await tiers.worker().delete("t3", 10**16)
    assert "t3" not in await verify_all(tiers)


async def test_what_is_merged_meanwhile_is_no_damage(tiers: Tiers) -> None:
    """Segments that a manifest has named are gone when they are asked for."""
    author = await tiers.author("busy")
    for number in range(20):
        await append_noise(author, f"{number}-")
    merged = False

    def plan(call: BlobCall) -> BlobFault | None:
        return BlobFault.DELAYED if not merged and call.method == "get" and "/seg/" in call.key else None

    tiers.blobs.plan = plan
    audit = asyncio.create_task(tiers.worker().upkeep.audit("busy"))
    await asyncio.sleep(0.01)
    tiers.blobs.plan, merged = None, True
    other = tiers.worker().upkeep
    await other.compact("busy")
    await other.collect_garbage("busy")
    await tiers.blobs.release()
    assert (await audit).problems == ()


async def test_an_archive_that_is_away_is_an_error_and_not_damage(tiers: Tiers) -> None:
    """Nothing is known of the threads then."""
    tiers.blobs.plan = lambda call: BlobFault.ERROR_BEFORE if call.method == "get" else None
    with pytest.raises(StoreUnavailableError):
        await verify_all(tiers)


async def test_denied_access_is_an_error_and_not_damage(tiers: Tiers) -> None:
    """A wrong key is one message, not one of each thread."""
    tiers.blobs.plan = lambda call: BlobFault.NO_ACCESS if call.method == "get" else None
    with pytest.raises(ArchiveAccessError):
        await tiers.worker().upkeep.audit("t1")


async def test_threads_without_an_archive_are_read(tiers: Tiers) -> None:
    """A hot store alone is verified as well, page by page."""
    hot = MemoryThreads()
    author = Author(HotThreads(hot), "only")
    await author.open()
    await author.append(author.step(*noise(700), answer=None))
    verifying = ThreadVerification(hot, HotThreads(hot), None)
    (found,) = [each async for each in verifying.verify_all()]
    page = await HotThreads(hot).read(ReadPage("only"))
    assert replace(found, bytes_read=0, place="", data_read=False) == VerifiedThread(
        "only", "sound", page.head.position, page.head.position
    )
