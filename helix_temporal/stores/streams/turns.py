"""Where a turn begins in what is kept of a stream: read over the protocol alone."""

import contextlib
from collections.abc import AsyncGenerator
from typing import Final

from helix_temporal.models.streams import RunStarted, StoredChunk
from helix_temporal.stores.protocols.streams import StreamStore

_BEFORE_BEGIN: Final = 20
"""Chunks that may stand between the place where a run was recorded and its begin."""


async def find_newest_turn(store: StreamStore, session_id: str) -> int | None:
    """The place from which the newest turn that has begun can be read; None for all that is kept."""
    info = await store.get_info(session_id)
    if info is None:
        return None
    found = info.first_sequence - 1
    async for place, _ in _read_beginnings(store, session_id, info.last_sequence):
        found = place
    return found


async def find_turn_of_message(store: StreamStore, session_id: str, message_id: str) -> int | None:
    """The place from which the turn that answers a message can be read; None where that is not kept."""
    info = await store.get_info(session_id)
    if info is None:
        return None
    async with contextlib.aclosing(_read_beginnings(store, session_id, info.last_sequence)) as beginnings:
        async for place, turn in beginnings:
            if message_id in turn.message_ids:
                return place
    return None


async def find_begin_of_run(
    store: StreamStore, session_id: str, run_id: str, start_sequence: int
) -> RunStarted | None:
    """The begin of a run whose chunks come after a sequence; None where that is not kept."""
    info = await store.get_info(session_id)
    if info is None or not info.first_sequence <= start_sequence + 1 <= info.last_sequence:
        return None
    last = min(info.last_sequence, start_sequence + _BEFORE_BEGIN)
    reader = await store.create_resumable_reader(session_id, after_sequence=start_sequence)
    if reader is None:
        return None
    async with contextlib.aclosing(reader):
        async for stored in reader:
            chunk = stored.chunk
            if isinstance(chunk, RunStarted) and chunk.agent_id == run_id:
                return chunk
            if stored.sequence >= last:
                break
    return None


async def _read_beginnings(
    store: StreamStore, session_id: str, last: int
) -> AsyncGenerator[tuple[int, RunStarted]]:
    """The turns whose beginning is kept up to a sequence, each with the place before it."""
    async with contextlib.aclosing(read_kept_chunks(store, session_id, last)) as chunks:
        async for stored in chunks:
            # Most chunks are pieces of text, which need not be decoded.
            chunk = stored.chunk if b'"run_started"' in stored.body else None
            if isinstance(chunk, RunStarted):
                yield stored.sequence - 1, chunk


async def read_kept_chunks(store: StreamStore, session_id: str, last: int) -> AsyncGenerator[StoredChunk]:
    """What is kept of a stream up to a sequence; nothing if there is none."""
    info = await store.get_info(session_id)
    if info is None or info.last_sequence < last or info.first_sequence > last:
        return
    reader = await store.create_resumable_reader(session_id, from_sequence=info.first_sequence)
    if reader is None:
        return
    async with contextlib.aclosing(reader):
        async for stored in reader:
            yield stored
            if stored.sequence >= last:
                return
