"""A chunk from its writer to its reader, against a bare Redis Stream; and a thousand readers of one."""

import asyncio
import contextlib
import statistics
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any, Final

from redis.asyncio import Redis

from bench._bare_stores import redis_client
from bench._lab import Lab, in_turns, per
from bench._report import Row, compared, told
from helix_temporal.models.chunks import TextDelta
from helix_temporal.stores.protocols.streams import ResumableReader, StreamStore
from helix_temporal.stores.redis import RedisBackend

_PIECE: Final = "Hello"
_BETWEEN_SECONDS: Final = 0.002
"""The reader waits again by then: what is measured is a chunk that comes while somebody waits for it."""


async def streams(lab: Lab) -> list[Row]:
    """One reader, then many."""
    async with _store(lab) as store, contextlib.AsyncExitStack() as stack:
        writing, reading = redis_client(lab.settings), redis_client(lab.settings)
        for client in (writing, reading):
            stack.push_async_callback(client.aclose)
        contestants = {
            "ours": lambda: _ours(store, lab.sizes.chunks),
            "bare": lambda: _bare(writing, reading, lab.sizes.chunks),
        }
        found = await in_turns(lab, "streams: a chunk to its reader", contestants)
        first = compared(
            "stream: a chunk from its writer to its reader",
            "ms",
            per(found["ours"], 1e3),
            per(found["bare"], 1e3),
            at_most=1.2,
            note="floor: XADD, and XREAD BLOCK on another connection",
        )
        return [first, *await _many(lab, store, reading)]


@contextlib.asynccontextmanager
async def _store(lab: Lab) -> AsyncIterator[StreamStore]:
    settings = lab.own()
    backend = RedisBackend(settings.redis_url or "", prefix=settings.redis_prefix)
    try:
        yield backend.streams
    finally:
        await backend.close()


async def _ours(store: StreamStore, count: int) -> float:
    """Median of the seconds from the call of `write` to the chunk in the reader's loop."""
    stream_id = uuid.uuid4().hex
    async with await store.create_writer(stream_id, agent_id="run", fence=1) as writer:
        sent = [0.0]
        reader = await store.create_resumable_reader(stream_id)
        assert reader is not None
        task = asyncio.create_task(_seconds(reader, sent, count))
        for _ in range(count):
            await asyncio.sleep(_BETWEEN_SECONDS)
            sent[0] = time.perf_counter()
            await writer.write(TextDelta(delta=_PIECE))
        return statistics.median(await task)


async def _seconds(reader: ResumableReader, sent: list[float], count: int) -> list[float]:
    found: list[float] = []
    async for _ in reader:
        found.append(time.perf_counter() - sent[0])
        if len(found) == count:
            break
    await reader.aclose()
    return found


async def _bare(writing: Redis, reading: Redis, count: int) -> float:
    """The same by hand: fields and values as small as they may be."""
    key, sent = uuid.uuid4().hex, [0.0]

    async def read() -> list[float]:
        found: list[float] = []
        last: Any = b"0"
        while len(found) < count:
            answer: Any = await reading.xread({key: last}, block=5_000)
            for _, entries in answer:
                found += [time.perf_counter() - sent[0]] * len(entries)
                last = entries[-1][0]
        return found

    task = asyncio.create_task(read())
    for _ in range(count):
        await asyncio.sleep(_BETWEEN_SECONDS)
        sent[0] = time.perf_counter()
        await writing.xadd(key, {"d": _PIECE})
    return statistics.median(await task)


async def _many(lab: Lab, store: StreamStore, client: Redis) -> list[Row]:
    """Many readers of one stream in this process: who has what, how late, and over how many connections."""
    readers, count, stream_id = lab.sizes.readers, lab.sizes.read_chunks, uuid.uuid4().hex
    lab.say(f"streams: {readers:,} readers")
    before = await _connections(client)
    async with await store.create_writer(stream_id, agent_id="run", fence=1) as writer:
        tasks = [asyncio.create_task(_read(store, stream_id, count)) for _ in range(readers)]
        await asyncio.sleep(1.0)
        sent = []
        for number in range(count):
            sent.append(time.perf_counter())
            await writer.write(TextDelta(delta=str(number)))
            await asyncio.sleep(0.05)
        found = await asyncio.gather(*tasks)
        used = await _connections(client) - before
    wrong = sum(texts != [str(each) for each in range(count)] for texts, _ in found)
    last = [max(times[at] for _, times in found) - sent[at] for at in range(count)]
    return [
        told(f"stream: {readers:,} readers: lost, doubled or out of order", "readers", [wrong], at_most=0),
        told(f"stream: {readers:,} readers: until the last one has a chunk", "ms", per(last, 1e3)),
        told(f"stream: {readers:,} readers: connections", "connections", [used], at_most=64),
    ]


async def _read(store: StreamStore, stream_id: str, count: int) -> tuple[list[str], list[float]]:
    texts: list[str] = []
    times: list[float] = []
    reader = await store.create_resumable_reader(stream_id)
    assert reader is not None
    async for stored in reader:
        if isinstance(stored.chunk, TextDelta):
            texts.append(stored.chunk.delta)
            times.append(time.perf_counter())
        if len(texts) == count:
            break
    await reader.aclose()
    return texts, times


async def _connections(client: Redis) -> int:
    found: Any = await client.info("clients")
    return int(found["connected_clients"])
