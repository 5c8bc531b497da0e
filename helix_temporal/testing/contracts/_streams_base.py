"""What every stream store promises.

::

    class TestMyStreams(StreamContract):
        @pytest.fixture
        async def make(self):          # makes stores on one empty place, as other processes would have them
            stores = []
            def make(limits):
                stores.append(MyStreams(limits))
                return stores[-1]
            yield make
            for store in stores:
                await store.close()
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest

from helix_temporal.models.streams import DEFAULT_LIMITS, ChunkBase, StoredChunk, StreamLimits, TextChunk
from helix_temporal.stores.protocols.streams import ResumableReader, StreamReader, StreamStore, StreamWriter
from helix_temporal.testing.builders import an_id

MakeStreams = Callable[[StreamLimits], StreamStore]

SMALL: Final = StreamLimits(max_chunks=5, max_chunk_bytes=2048)
"""Keeps five chunks, none larger than 2 KiB."""


def a_delta(text: str, message_id: str = "m1") -> TextChunk:
    """A piece of an answer."""
    return TextChunk(delta=text, message_id=message_id)


def deltas(count: int, start: int = 1) -> list[ChunkBase]:
    """Pieces with their numbers as text."""
    return [a_delta(str(number)) for number in range(start, start + count)]


async def writer_on(store: StreamStore, stream_id: str, **fields: Any) -> StreamWriter:
    """A writer of some run."""
    return await store.create_writer(stream_id, **{"agent_id": "run-1", "agent_type": "writer", **fields})


async def a_stream(store: StreamStore, count: int = 0, **fields: Any) -> str:
    """A stream with so many chunks."""
    stream_id = an_id()
    writer = await writer_on(store, stream_id, **fields)
    for start in range(0, count, 500):
        await writer.write_many(deltas(min(500, count - start), start + 1))
    return stream_id


async def reader_on(store: StreamStore, stream_id: str, **place: Any) -> ResumableReader:
    """A reader of a stream that is there."""
    reader = await store.create_resumable_reader(stream_id, **place)
    assert reader is not None
    return reader


async def plain_reader_on(store: StreamStore, stream_id: str) -> StreamReader:
    """The same without places."""
    reader = await store.create_reader(stream_id)
    assert reader is not None
    return reader


async def take(reader: ResumableReader, count: int) -> list[StoredChunk]:
    """So many chunks."""
    chunks = aiter(reader)
    return [await anext(chunks) for _ in range(count)]


async def rest(reader: ResumableReader) -> list[StoredChunk]:
    """All chunks until the end."""
    return [stored async for stored in reader]


async def stored_in(store: StreamStore, stream_id: str) -> list[StoredChunk]:
    """All chunks of a stream that has ended."""
    return await rest(await reader_on(store, stream_id))


def nothing() -> list[StoredChunk]:
    """No chunks yet."""
    return []


def sequences(chunks: list[StoredChunk]) -> list[int]:
    """Where they stand."""
    return [stored.sequence for stored in chunks]


def texts(chunks: list[StoredChunk]) -> list[str]:
    """What they say."""
    return [stored.chunk.delta for stored in chunks if isinstance(stored.chunk, TextChunk)]


async def settled() -> None:
    """Let tasks that were started come to where they wait."""
    await asyncio.sleep(0.05)


class StreamFixtures:
    """What a binding brings, and what follows from it."""

    @pytest.fixture
    def make(self) -> MakeStreams:
        """Makes stores on one place."""
        raise NotImplementedError

    @pytest.fixture
    async def streams(self, make: MakeStreams) -> StreamStore:
        """An empty store."""
        return make(DEFAULT_LIMITS)

    @pytest.fixture
    async def another(self, make: MakeStreams) -> StreamStore:
        """The same place, as another process has it."""
        return make(DEFAULT_LIMITS)
