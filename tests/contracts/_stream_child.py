"""Another process that writes to a stream, or reads it.

``python -m tests.contracts._stream_child <write or read> <its name> <places>``
"""

import asyncio
import json
import sys
from typing import Any

from helix_temporal.models.streams import TextChunk
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.protocols.streams import StreamStore
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.stores.sqlite import SqliteBackend

STREAM = "shared"
WRITERS, CHUNKS = 4, 40

BACKENDS: dict[str, Any] = {
    "sqlite": lambda path: SqliteBackend(path, timeout=60),
    "redis": lambda url, prefix: RedisBackend(url, prefix=prefix, timeout=60),
    "postgres": lambda dsn, prefix: PostgresBackend(dsn, table_prefix=prefix, timeout=60),
}


async def write(store: StreamStore, name: str) -> list[int]:
    """Where this writer's chunks stand; some are said twice, as one whose answer was lost is."""
    found = []
    async with await store.create_writer(STREAM, agent_id=name) as writer:
        for number in range(CHUNKS):
            chunk = TextChunk(delta=f"{name}/{number}")
            first = await writer.write(chunk, dedup_key=f"{name}/{number}")
            if number % 8 == 0:
                assert await writer.write(chunk, dedup_key=f"{name}/{number}") == first
            found.append(first)
    return found


async def write_all(store: StreamStore, name: str) -> Any:
    """What each writer of this process wrote."""
    names = [f"{name}.{number}" for number in range(WRITERS)]
    return dict(zip(names, await asyncio.gather(*(write(store, each) for each in names)), strict=True))


async def read(store: StreamStore, _: str) -> Any:
    """Everything until the stream ends; it was there before this process."""
    reader = await store.create_resumable_reader(STREAM)
    assert reader is not None
    return [(stored.sequence, stored.run_id) async for stored in reader]


async def main(what: str, name: str, places: str) -> None:
    """Work in all places at once, and report."""

    async def work(place: str, arguments: list[str]) -> Any:
        backend = BACKENDS[place](*arguments)
        try:
            return await {"read": read, "write": write_all}[what](backend.streams, name)
        finally:
            await backend.close()

    given = json.loads(places)
    reports = await asyncio.gather(*(work(place, arguments) for place, arguments in given.items()))
    sys.stdout.write(json.dumps(dict(zip(given, reports, strict=True))))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
