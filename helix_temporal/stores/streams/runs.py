"""Which run a stream shows at work: read from its end, over the protocol alone."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from helix_temporal.errors import StreamTruncatedError
from helix_temporal.models.streams import RunEnded, RunStarted, StoredChunk, StreamInfo, StreamResync
from helix_temporal.stores.protocols.streams import StreamStore
from helix_temporal.stores.streams.reader import PAGE

_FEW: Final = 8
"""Chunks that are read first: the last one of a stream at rest is the end of its newest run."""
_FAR: Final = 2000
"""Chunks that are read at most: an open waits for it."""
_MARKS: Final = (b'"run_started"', b'"run_ended"', b'"stream_resync"')


@dataclass(frozen=True, slots=True)
class BegunRun:
    """A run that has begun and has no end in its stream.

    Attributes:
        turn: The number of its turn; None where its beginning is too far back, or not kept any more.
    """

    run_id: str
    turn: int | None = None


async def run_at_work(store: StreamStore, stream_id: str, *, below: int) -> BegunRun | None:
    """The run that began last, if nobody has written its end and nobody writes under ``below`` yet.

    Somebody who wrote under that fence, or a higher one, may have begun the run, and be at it.

    Of a stream at rest this reads a few chunks, else back to where the run began, if that is not too far.

    Raises:
        StreamNotFoundError: The stream was deleted meanwhile.
        StreamDroppedError, StoreUnavailableError: The store does not answer.
    """
    info = await store.get_info(stream_id)
    if info is None or info.status in {"ended", "failed"} or (info.max_fence or 0) >= below:
        return None
    # What is read was written before the fence was looked at: nothing of it is under a higher one.
    newest, stop, size = "", info.last_sequence, _FEW
    first = max(info.first_sequence, stop + 1 - _FAR)
    with contextlib.suppress(StreamTruncatedError):
        while stop >= first:
            start = max(first, stop + 1 - size)
            chunks = await _read_chunks(store, info, start, stop)
            mark = _newest_mark(chunks)
            if mark is not None:
                chunk = mark.chunk
                return BegunRun(mark.run_id, chunk.turn) if isinstance(chunk, RunStarted) else None
            newest = newest or next((each.run_id for each in reversed(chunks) if each.run_id), "")
            stop, size = start - 1, PAGE
    # Its beginning is before that; where all was read, nobody who wrote here has shown a run.
    read_all = first == 1 and stop < first
    return BegunRun(newest) if newest and not read_all else None


async def _read_chunks(store: StreamStore, info: StreamInfo, start: int, stop: int) -> list[StoredChunk]:
    reader = await store.create_resumable_reader(info.stream_id, from_sequence=start)
    found: list[StoredChunk] = []
    if reader is not None:
        async with contextlib.aclosing(reader):
            async for stored in reader:
                found.append(stored)
                if stored.sequence >= stop:
                    break
    return found


def _newest_mark(chunks: Sequence[StoredChunk]) -> StoredChunk | None:
    """The last of them that says that a run begins or ends, or that what was before counts no longer."""
    for stored in reversed(chunks):
        # Most are pieces of text: only those that may be marks are decoded.
        if any(name in stored.body for name in _MARKS) and isinstance(
            stored.chunk, RunStarted | RunEnded | StreamResync
        ):
            return stored
    return None
