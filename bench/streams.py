"""A chunk from its writer to its reader, against a bare Redis Stream; and a thousand readers of one."""

import asyncio
import contextlib
import random
import statistics
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import orjson
from redis.asyncio import Redis

from bench._arrivals import Arrivals, arrivals, streams_of, told_in
from bench._lab import SEED, Lab, environment, per
from bench._report import Row, compared, told
from bench._workers import program
from helix_temporal.activities.stream_buffer import BufferedStreamWriter
from helix_temporal.models.streams import TextChunk
from helix_temporal.settings import Settings
from helix_temporal.stores.protocols.streams import StreamStore, StreamWriter

_PIECE: Final = "Hello"
_BETWEEN_SECONDS: Final = 0.004
"""The reader waits again by then: what is measured is a chunk that comes while somebody waits for it."""


async def streams(lab: Lab) -> list[Row]:
    """One reader, in another process and in this one; then many."""
    settings = lab.own()
    async with streams_of(settings) as (store, bare):
        apart = await _first(lab, settings, store, bare, apart=True)
        together = await _first(lab, settings, store, bare, apart=False)
        return [*apart, *together, *await _many(lab, store, bare)]


async def _first(lab: Lab, settings: Settings, store: StreamStore, bare: Redis, *, apart: bool) -> list[Row]:
    """Chunks of each kind in turns: what slows the machine down for a while slows all of them down.

    Their order changes: the one after another that is still under way would always have the worst of it.
    """
    where = "another process" if apart else "the same process"
    chunks, name, order = lab.sizes.chunks, uuid.uuid4().hex, random.Random(SEED)
    count = chunks * (lab.sizes.rounds + 1)
    lab.say(f"streams: {count:,} chunks to a reader in {where}")
    async with contextlib.AsyncExitStack() as stack:
        sends = await stack.enter_async_context(_sends(store, bare, name))
        if apart:
            came = await stack.enter_async_context(_elsewhere(settings, name, count))
        else:
            came = asyncio.create_task(arrivals(store, bare, name, count))
        sent: Arrivals = {kind: [] for kind in sends}
        for _ in range(count):
            for kind in order.sample(sorted(sends), len(sends)):
                await asyncio.sleep(_BETWEEN_SECONDS)
                sent[kind].append(time.monotonic_ns())
                await sends[kind]()
        found = await came
    took = {kind: _medians(sent[kind], found[kind], chunks) for kind in sent}
    floor = "floor: XADD, and XREAD BLOCK on another connection"
    most = 1.2 if apart else None
    return [
        compared(
            f"stream: writer to reader in {where}", "ms", took["ours"], took["bare"], at_most=most, note=floor
        ),
        compared(
            f"stream: a step's model to reader in {where}", "ms", took["told"], took["bare"], note=floor
        ),
    ]


@contextlib.asynccontextmanager
async def _sends(
    store: StreamStore, bare: Redis, name: str
) -> AsyncIterator[dict[str, Callable[[], Awaitable[object]]]]:
    """Ways of sending a piece of text."""

    async def tell() -> None:
        buffered.put_piece(TextChunk, "delta", _PIECE, at_once=True)

    def writer(stream_id: str) -> Awaitable[StreamWriter]:
        return store.create_writer(stream_id, agent_id="run", fence=1)

    async with await writer(name) as writing, BufferedStreamWriter(lambda: writer(told_in(name))) as buffered:
        yield {
            "ours": lambda: writing.write(TextChunk(delta=_PIECE)),
            "bare": lambda: bare.xadd(name, {"d": _PIECE}),
            "told": tell,
        }


@contextlib.asynccontextmanager
async def _elsewhere(settings: Settings, name: str, count: int) -> AsyncIterator[Awaitable[Arrivals]]:
    """A reader in a process of its own."""
    command = (sys.executable, "-m", "bench._arrivals", name, str(count))
    async with program(command, environment(settings)) as process:
        assert process.stdout is not None
        output = process.stdout

        async def told_in_the_end() -> Arrivals:
            found: Arrivals = orjson.loads(await output.read())
            return found

        yield told_in_the_end()


def _medians(sent: list[int], came: list[int], size: int) -> list[float]:
    """Milliseconds, of each round after the first, which warms up."""
    took = [(there - here) / 1e6 for here, there in zip(sent, came, strict=True)]
    return [statistics.median(took[at : at + size]) for at in range(size, len(took), size)]


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
            await writer.write(TextChunk(delta=str(number)))
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
        if isinstance(stored.chunk, TextChunk):
            texts.append(stored.chunk.delta)
            times.append(time.perf_counter())
        if len(texts) == count:
            break
    await reader.aclose()
    return texts, times


async def _connections(client: Redis) -> int:
    found: Any = await client.info("clients")
    return int(found["connected_clients"])
