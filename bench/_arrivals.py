"""A reader of streams, and when it had what: in this process, or ``python -m bench._arrivals`` in another."""

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from redis.asyncio import Redis

from bench._bare_stores import redis_client
from helix_temporal.client._streams import StreamFollower
from helix_temporal.models.streams import TextChunk
from helix_temporal.settings import Settings
from helix_temporal.stores.protocols.streams import StreamStore
from helix_temporal.stores.redis import RedisBackend

Arrivals = dict[str, list[int]]
"""Nanoseconds, by the clock that all processes of a machine share, of each of many chunks.

``ours`` by a writer, ``told`` by what tells of a step in a worker, ``bare`` by a driver alone.
"""


@contextlib.asynccontextmanager
async def streams_of(settings: Settings) -> AsyncIterator[tuple[StreamStore, Redis]]:
    """Our streams, and a driver as its manual opens it."""
    backend = RedisBackend(settings.redis_url or "", prefix=settings.redis_prefix)
    bare = redis_client(settings)
    try:
        yield backend.streams, bare
    finally:
        await bare.aclose()
        await backend.close()


async def arrivals(streams: StreamStore, bare: Redis, name: str, count: int) -> Arrivals:
    """Wait for so many chunks of each stream."""
    ours, told, theirs = await asyncio.gather(
        _ours(streams, name, count), _ours(streams, told_in(name), count), _bare(bare, name, count)
    )
    return {"ours": ours, "told": told, "bare": theirs}


def told_in(name: str) -> str:
    """The stream of what a worker tells."""
    return f"{name}.told"


async def _ours(streams: StreamStore, name: str, count: int) -> list[int]:
    """As ``SessionClient.stream`` reads, up to the text of the chunk."""
    found: list[int] = []
    async with contextlib.aclosing(StreamFollower(streams, name, until="closed").follow_chunks()) as chunks:
        async for stored in chunks:
            assert isinstance(stored.chunk, TextChunk)
            found.append(time.monotonic_ns())
            if len(found) == count:
                break
    return found


async def _bare(bare: Redis, name: str, count: int) -> list[int]:
    """By hand; a chunk is as small as it may be."""
    found: list[int] = []
    last: Any = b"0"
    while len(found) < count:
        answer: Any = await bare.xread({name: last}, block=5_000)
        for _, entries in answer.items() if isinstance(answer, dict) else answer:
            found += [time.monotonic_ns()] * len(entries)
            last = entries[-1][0]
    return found


async def main(name: str, count: int) -> None:
    """Read, and tell when what came; whoever started us ends us early by closing our standard input."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    async with streams_of(Settings.from_env(os.environ)) as (streams, bare):
        reading = asyncio.create_task(arrivals(streams, bare, name, count))
        _say(b"ready")
        ending = asyncio.create_task(ended.wait())
        await asyncio.wait([reading, ending], return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            _say(json.dumps(reading.result()).encode())
        for task in (reading, ending):
            task.cancel()
        await asyncio.wait([reading, ending])


def _say(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
