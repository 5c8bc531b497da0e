"""What a worker remembers of archives costs a bounded amount of memory, however many threads it serves."""

import gc
import tracemalloc

import pytest

from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.coldtier import archive as _archive
from helix_temporal.coldtier.archive import Archive
from helix_temporal.coldtier.format import Layout, Manifest, encode_manifest
from helix_temporal.models.stored_messages import Head, Kind, StoredMessage
from tests.unit.coldtier._tiers import Tiers

THREADS = 200
BODIES = 50_000
"""Bytes of messages in each manifest."""
LIMIT = 2_000_000


async def archive_of_many() -> Archive:
    archive = Archive(MemoryBlobs(), Layout("helix"))
    for number in range(THREADS):
        messages = tuple(
            StoredMessage(Kind.USER, f"{number}-{at}", b"x" * 500) for at in range(BODIES // 500)
        )
        head = Head(position=len(messages), last_id=messages[-1].id)
        manifest = Manifest(
            f"t{number}", version=1, nonce="n", head=head, committed=len(messages), inline=messages
        )
        await archive.blobs.put(archive.layout.manifest_key(f"t{number}"), encode_manifest(manifest))
    return archive


async def read_all(archive: Archive) -> int:
    """Bytes that are held afterwards and were not before."""
    tracemalloc.start()
    try:
        for number in range(THREADS):
            await archive.read_manifest(f"t{number}")
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


async def test_memory_is_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred threads of 50 KB are 10 MB: of two that may be kept, no more than two are."""
    monkeypatch.setattr(_archive, "REMEMBERED_BYTES", LIMIT)
    assert await read_all(await archive_of_many()) < 1.5 * LIMIT


async def test_the_newest_are_the_ones_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was used last is used next."""
    monkeypatch.setattr(_archive, "REMEMBERED_BYTES", LIMIT)
    archive = await archive_of_many()
    await read_all(archive)
    assert archive.find_remembered(f"t{THREADS - 1}") is not None
    assert archive.find_remembered("t0") is None


async def test_one_larger_than_all_is_kept_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread at work needs no second read."""
    monkeypatch.setattr(_archive, "REMEMBERED_BYTES", 10)
    archive = await archive_of_many()
    await read_all(archive)
    assert [name for name in ("t0", "t198", "t199") if archive.find_remembered(name)] == ["t199"]


async def test_forgetting_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was forgotten no longer counts."""
    monkeypatch.setattr(_archive, "REMEMBERED_BYTES", LIMIT)
    archive = await archive_of_many()
    await archive.read_manifest("t0")
    for _ in range(3 * LIMIT // BODIES):
        await archive.read_manifest("t1")
        archive.forget_manifest("t1")
    assert archive.find_remembered("t0") is not None


async def test_what_has_ended_takes_no_memory() -> None:
    """A worker that has served twenty sessions, all closed, knows no more of them than of one."""
    tiers = Tiers()

    async def serve(thread_id: str) -> int:
        author = await tiers.author(thread_id)
        await author.turn()
        await author.flush()
        assert await tiers.threads.evict(thread_id, author.epoch) == "dropped"
        return sum(type(each) is Manifest for each in gc.get_objects())

    known = [await serve(f"t{number}") for number in range(20)]
    assert known[-1] == known[0]
