"""What is particular to streams in files: killed writers, damage, trimming on the disk, shortened names."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from helix_temporal.errors import InvalidIdError, StoreCorruptError, UnsupportedServerError
from helix_temporal.models.ids import encode_id
from helix_temporal.models.streams import StreamLimits
from helix_temporal.stores.file.streams import FileStreams
from helix_temporal.testing.contracts._streams_base import (
    a_delta,
    a_stream,
    deltas,
    reader_on,
    rest,
    sequences,
    stored_in,
    take,
    texts,
    writer_on,
)


def file_of(directory: Path, stream_id: str) -> Path:
    """Where the stream is."""
    return directory / f"{encode_id(stream_id)}.stream"


@pytest.mark.parametrize("cut", [1, 10, 60])
async def test_what_a_killed_writer_left_is_cut_off(data_directory: Path, cut: int) -> None:
    """Half a chunk is no chunk, and the next one takes its place."""
    before = FileStreams(data_directory)
    stream_id = await a_stream(before, 2)
    writer = await writer_on(before, stream_id)
    await writer.write(a_delta("torn"))
    path = file_of(data_directory, stream_id)
    os.truncate(path, path.stat().st_size - cut)
    after = FileStreams(data_directory)
    assert sequences(await take(await reader_on(after, stream_id), 2)) == [1, 2]
    assert await (await writer_on(after, stream_id)).write(a_delta("whole")) == 3
    await after.end_stream(stream_id, status="completed")
    assert texts(await stored_in(FileStreams(data_directory), stream_id)) == ["1", "2", "whole"]


async def test_a_batch_that_was_cut_is_not_there_at_all(data_directory: Path) -> None:
    """All of its chunks, or none."""
    store = FileStreams(data_directory)
    stream_id = await a_stream(store, 50)
    path = file_of(data_directory, stream_id)
    os.truncate(path, path.stat().st_size - 2)
    info = await FileStreams(data_directory).get_info(stream_id)
    assert info is not None
    assert info.chunk_count == 0


async def test_damage_is_told(data_directory: Path) -> None:
    """A reader must not take half of a stream for all of it."""
    stream_id = await a_stream(FileStreams(data_directory), 5)
    path = file_of(data_directory, stream_id)
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"first"', b'"fi\xff\xfft"'))
    with pytest.raises(StoreCorruptError, match="delete it"):
        await FileStreams(data_directory).get_info(stream_id)


async def test_a_long_stream_stays_small(data_directory: Path) -> None:
    """What is trimmed leaves the disk, and who reads meanwhile goes on; keys are remembered."""
    store = FileStreams(data_directory, StreamLimits(max_chunks=50))
    reading = FileStreams(data_directory)
    stream_id = await a_stream(store)
    writer = await writer_on(store, stream_id)
    await writer.write(a_delta("first"), dedup_key="k")
    reader = await reader_on(reading, stream_id)
    seen = sequences(await take(reader, 1))
    sizes = []
    for _ in range(60):
        last = (await writer.write_many([a_delta("x" * 1000)] * 20))[-1]
        seen += sequences(await take(reader, last - seen[-1]))
        sizes.append(file_of(data_directory, stream_id).stat().st_size)
    assert seen == [*range(1, 1202)]
    assert max(sizes) < 700_000
    assert max(sizes) > sizes[-1] or sizes[-1] < 400_000
    again = FileStreams(data_directory, StreamLimits(max_chunks=50))
    assert await (await writer_on(again, stream_id)).write(a_delta("first"), dedup_key="k") == 1
    await again.end_stream(stream_id, status="completed")
    late = await reader_on(FileStreams(data_directory), stream_id, from_sequence=1152)
    assert sequences(await rest(late)) == [*range(1152, 1202)]


async def test_a_file_that_took_anothers_place_is_read_anew(data_directory: Path) -> None:
    """Inodes are used again: the start of the file tells."""
    one, other = FileStreams(data_directory), FileStreams(data_directory)
    for number in range(20):
        await (await writer_on(other, "s")).write_many(deltas(3, number))
        assert texts(await take(await reader_on(one, "s"), 3)) == [str(number + at) for at in range(3)]
        await other.delete_stream("s")
        assert await one.get_info("s") is None


async def test_expired_streams_leave_the_disk(data_directory: Path) -> None:
    """Swept by whoever makes the next one; those that are in use stay."""
    store = FileStreams(data_directory, StreamLimits(ttl=60.0))
    old, kept = await a_stream(store, 1), await a_stream(store, 1)
    past = time.time() - 100
    os.utime(file_of(data_directory, old), (past, past))
    os.utime(file_of(data_directory, kept), (past, past))
    later = FileStreams(data_directory, StreamLimits(ttl=60.0), clock=lambda: time.time() + 120)
    await (await writer_on(FileStreams(data_directory, clock=lambda: time.time() + 100), kept)).beat()
    os.utime(file_of(data_directory, kept), (past, past))
    await writer_on(later, "new")
    assert not file_of(data_directory, old).exists()
    assert file_of(data_directory, kept).exists()


async def test_two_ids_with_one_short_form_are_told_apart(data_directory: Path) -> None:
    """Their hashes would have to meet; then it is said."""
    store = FileStreams(data_directory)
    await (await writer_on(store, "mine")).write(a_delta("x"))
    file_of(data_directory, "mine").rename(file_of(data_directory, "yours"))
    with pytest.raises(InvalidIdError, match="same hashed form"):
        await store.get_info("yours")


async def test_a_place_that_may_not_be_written_is_a_lasting_error(tmp_path: Path) -> None:
    """Repeating would not help: an administrator must."""
    (tmp_path / "streams").write_text("not a directory")
    with pytest.raises(UnsupportedServerError):
        await writer_on(FileStreams(tmp_path / "streams"), "s")


async def test_threads_of_one_process_do_not_mix(data_directory: Path) -> None:
    """Calls run in threads; each write is whole."""
    store = FileStreams(data_directory)
    stream_id = await a_stream(store)
    writer = await writer_on(store, stream_id)
    found = await asyncio.gather(*(writer.write(a_delta(str(n)), dedup_key=f"k{n % 50}") for n in range(100)))
    assert sorted(set(found)) == [*range(1, 51)]
