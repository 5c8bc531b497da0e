"""What a command that follows a session tells while nothing comes."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from helix_temporal.cli.live_silence import note_silence
from helix_temporal.models.streams import ChunkBase, RunEnded, RunStarted, StoredChunk, to_bytes
from helix_temporal.views import silence


def stored(chunk: ChunkBase, written_at: int = 1 << 60) -> StoredChunk:
    """A chunk that was written just now, for a clock that is never behind."""
    return StoredChunk(1, "r1", written_at, to_bytes(chunk, {}))


async def read_noted(*chunks: StoredChunk, until: asyncio.Event) -> tuple[list[str], list[int]]:
    """What is read of chunks that end when something happens, and what is told meanwhile."""
    told: list[int] = []

    async def come() -> AsyncGenerator[StoredChunk]:
        for each in chunks:
            yield each
        await until.wait()

    def note(seconds: int) -> None:
        told.append(seconds)
        until.set()

    async with aclosing(note_silence(come(), note)) as noted:
        return [each.chunk.type async for each in noted], told


async def test_a_turn_of_which_nothing_comes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that stands still must not look as if the worker were alive."""
    monkeypatch.setattr(silence, "SILENCE", 1)
    read, told = await read_noted(stored(RunStarted(turn=1)), until=asyncio.Event())
    assert (read, told) == (["run_started"], [1])


async def test_a_chunk_that_is_old_already_counts_from_when_it_was_written() -> None:
    """The command was started a day after the worker was killed."""
    _, told = await read_noted(stored(RunStarted(turn=1), written_at=1), until=asyncio.Event())
    assert told[0] > 3600


async def test_an_idle_session_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is expected of it."""
    monkeypatch.setattr(silence, "SILENCE", 0.5)
    ended = asyncio.Event()
    asyncio.get_running_loop().call_later(1.2, ended.set)
    _, told = await read_noted(stored(RunStarted(turn=1)), stored(RunEnded(status="completed")), until=ended)
    assert told == []
