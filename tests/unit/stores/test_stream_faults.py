"""What networks and servers do to streams, and what writers and readers are told."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from helix_temporal.devstack import Valkey
from helix_temporal.errors import (
    StoreUnavailableError,
    StreamDroppedError,
    StreamNotFoundError,
    StreamTruncatedError,
)
from helix_temporal.models.streams import StreamLimits
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.testing.contracts._streams_base import (
    a_delta,
    a_stream,
    deltas,
    reader_on,
    rest,
    sequences,
    settled,
    stored_in,
    take,
    texts,
    writer_on,
)
from helix_temporal.testing.proxy import CutReply, FaultProxy
from tests.unit.stores._redis import backend_on


@pytest.fixture
async def redis(redis_url: str, redis_prefix: str) -> AsyncIterator[RedisBackend]:
    """A server that answers."""
    async with backend_on(redis_url, redis_prefix, timeout=30) as backend:
        yield backend


@pytest.mark.parametrize("after", [0, 3])
async def test_a_write_whose_answer_was_lost_is_written_once(
    redis: RedisBackend, redis_url: str, redis_prefix: str, after: int
) -> None:
    """The producer can't know: it says it again under the same key."""
    stream_id = await a_stream(redis.streams, 1)
    async with (
        FaultProxy.start(redis_url) as proxy,
        backend_on(f"redis://{proxy.address}", redis_prefix) as far,
    ):
        writer = await writer_on(far.streams, stream_id)
        proxy.fail(CutReply(after))
        with pytest.raises(StoreUnavailableError):
            await writer.write(a_delta("x"), dedup_key="k")
        assert await writer.write(a_delta("x"), dedup_key="k") == 2
    await redis.streams.end_stream(stream_id, status="completed")
    assert texts(await stored_in(redis.streams, stream_id)) == ["1", "x"]


async def test_a_reader_whose_connection_is_cut_goes_on_where_it_was(
    redis: RedisBackend, redis_url: str, redis_prefix: str
) -> None:
    """It must not take the cut for the end."""
    stream_id = await a_stream(redis.streams, 2)
    writer = await writer_on(redis.streams, stream_id)
    async with (
        FaultProxy.start(redis_url) as proxy,
        backend_on(f"redis://{proxy.address}", redis_prefix) as far,
    ):
        reader = await reader_on(far.streams, stream_id)
        await take(reader, 2)
        reading = asyncio.create_task(take(reader, 1))
        await settled()
        proxy.refuse()
        await writer.write(a_delta("3"))
        with pytest.raises(StreamDroppedError) as dropped:
            await reading
        assert dropped.value.facts["last_sequence"] == 2
        proxy.refuse(refusing=False)
        again = await reader_on(far.streams, stream_id, after_sequence=reader.last_sequence)
        assert texts(await take(again, 1)) == ["3"]
        assert texts(await take(reader, 1)) == ["3"]


async def test_a_server_that_dies_takes_no_reader_for_ended(own_valkey: Valkey, redis_prefix: str) -> None:
    """All of them are told, and find what they want when it is back."""
    async with backend_on(own_valkey.url, redis_prefix) as backend:
        stream_id = await a_stream(backend.streams, 3)
        readers = [await reader_on(backend.streams, stream_id) for _ in range(20)]
        reading = [asyncio.create_task(rest(each)) for each in readers]
        await settled()
        own_valkey.stop(kill=True)
        results = await asyncio.gather(*reading, return_exceptions=True)
        assert {type(each) for each in results} == {StreamDroppedError}
        own_valkey.start()
        await (await writer_on(backend.streams, stream_id)).write(a_delta("4"))
        await backend.streams.end_stream(stream_id, status="completed")
        for reader in readers:
            assert sequences(await rest(reader)) == [4]


async def test_a_server_that_lost_everything_is_no_end(redis: RedisBackend) -> None:
    """A new stream under the id is not what the reader was reading."""
    stream_id = await a_stream(redis.streams, 5)
    reader = await reader_on(redis.streams, stream_id)
    await take(reader, 5)
    connection = redis.streams._connection
    await connection.send_command("UNLINK", *redis.streams._stream_keys(stream_id))
    await (await writer_on(redis.streams, stream_id)).write_many(deltas(9))
    with pytest.raises(StreamNotFoundError):
        await take(reader, 1)


@pytest.fixture
def roll_back(redis: RedisBackend) -> Callable[[str, bool], Awaitable[None]]:
    """Takes a copy of a stream's keys, or restores it."""
    copies: dict[str, bytes] = {}

    async def run(stream_id: str, restore: bool) -> None:
        command = redis.streams._connection.send_command
        for key in redis.streams._stream_keys(stream_id):
            if not restore:
                copies[key] = await command("DUMP", key)
            elif copies[key] is None:
                await command("UNLINK", key)
            else:
                await command("RESTORE", key, 0, copies[key], "REPLACE")

    return run


@pytest.mark.parametrize("key", [None, "new"])
async def test_a_writer_that_sees_a_stream_set_back_resyncs_it_once(
    redis: RedisBackend, roll_back: Callable[[str, bool], Awaitable[None]], key: str | None
) -> None:
    """A step that streams while Redis loses its last second: the numbers that it had are not used again."""
    stream_id = await a_stream(redis.streams, 50)
    writer = await writer_on(redis.streams, stream_id)
    await writer.write(a_delta("kept"), dedup_key="old")
    await roll_back(stream_id, False)
    await writer.write_many(deltas(5))
    reader = await reader_on(redis.streams, stream_id)
    seen = (await take(reader, 56))[-1].sequence
    await reader.aclose()
    await roll_back(stream_id, True)
    first = await writer.write(a_delta("a"), dedup_key=key)
    others = [
        await writer.write(a_delta("b")),
        await (await writer_on(redis.streams, stream_id)).write(a_delta("c")),
    ]
    await redis.streams.end_stream(stream_id, status="completed")
    found = await rest(await reader_on(redis.streams, stream_id, after_sequence=seen))
    assert [each.chunk.type for each in found] == ["stream_resync", *["text_delta"] * 3]
    assert sequences(found)[1:] == [first, *others] == [first, first + 1, first + 2]


async def test_writers_that_write_together_take_no_answer_for_a_loss(redis: RedisBackend) -> None:
    """Answers may overtake each other."""
    stream_id = await a_stream(redis.streams)
    writers = [await writer_on(redis.streams, stream_id) for _ in range(20)]
    for _ in range(10):
        await asyncio.gather(*(each.write(a_delta("x")) for each in writers))
    await redis.streams.end_stream(stream_id, status="completed")
    assert sequences(await stored_in(redis.streams, stream_id)) == [*range(1, 201)]


async def test_chunks_that_a_server_evicted_are_missed(redis: RedisBackend) -> None:
    """Short of memory it may take keys that have a time to live: the gap is told."""
    stream_id = await a_stream(redis.streams, 5)
    _, chunks, keys = redis.streams._stream_keys(stream_id)
    await redis.streams._connection.send_command("UNLINK", chunks, keys)
    writer = await writer_on(redis.streams, stream_id)
    with pytest.raises(StreamTruncatedError) as missed:
        await take(await reader_on(redis.streams, stream_id), 1)
    assert missed.value.facts["first_available"] == 6
    assert await writer.write(a_delta("6")) == 6
    assert texts(await take(await reader_on(redis.streams, stream_id, from_sequence=6), 1)) == ["6"]


async def test_what_is_left_of_an_evicted_head_is_not_in_the_way(redis: RedisBackend) -> None:
    """Redis refuses entries below those that are there."""
    stream_id = await a_stream(redis.streams, 5)
    await redis.streams._connection.send_command("UNLINK", redis.streams._stream_keys(stream_id)[0])
    assert await redis.streams.get_info(stream_id) is None
    assert await (await writer_on(redis.streams, stream_id)).write(a_delta("1")) == 1


async def test_a_long_stream_stays_small(redis_url: str, redis_prefix: str) -> None:
    """Memory is bounded also where nobody reads."""
    backend = RedisBackend(redis_url, prefix=redis_prefix, stream_limits=StreamLimits(max_chunks=200))
    stream_id = await a_stream(backend.streams, 3000)
    _, chunks, _ = backend.streams._stream_keys(stream_id)
    assert await backend.streams._connection.send_command("XLEN", chunks) < 500
    await backend.close()


async def test_every_key_of_a_stream_ends_with_it(redis_url: str, redis_prefix: str) -> None:
    """One that stayed would stay for ever: nobody looks for it."""
    backend = RedisBackend(redis_url, prefix=redis_prefix, stream_limits=StreamLimits(ttl=100.0))
    stream_id = await a_stream(backend.streams)
    command = backend.streams._connection.send_command
    await backend.streams.reset_stream(stream_id)
    writer = await writer_on(backend.streams, stream_id)
    await writer.write(a_delta("x"))
    await writer.write(a_delta("x"), dedup_key="k")
    left = [await command("PTTL", key) for key in backend.streams._stream_keys(stream_id)]
    assert all(100_000 <= each <= 113_000 for each in left)
    await backend.streams.delete_stream(stream_id)
    assert await command("EXISTS", *backend.streams._stream_keys(stream_id)) == 0
    await backend.close()


async def test_an_audience_shares_one_connection(redis: RedisBackend) -> None:
    """A thousand readers of one stream are one to the server."""
    stream_id = await a_stream(redis.streams, 1)
    writer = await writer_on(redis.streams, stream_id)
    readers = [await reader_on(redis.streams, stream_id) for _ in range(1000)]
    reading = [asyncio.create_task(take(each, 11)) for each in readers]
    await asyncio.sleep(0.5)
    blocked = (await redis.streams._connection.send_command("INFO", "clients"))["blocked_clients"]
    for chunk in deltas(10):
        await writer.write(chunk)
    found = await asyncio.gather(*reading)
    assert all(sequences(each) == [*range(1, 12)] for each in found)
    assert len({id(each[-1]) for each in found}) == 1
    assert blocked <= 20
    for reader in readers:
        await reader.aclose()
