"""The chunks of a session that is followed, with a word while none come of a turn that runs."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Final

from helix_temporal.models import streams
from helix_temporal.models.streams import ChunkBase, StoredChunk
from helix_temporal.views.silence import Silence

_RUNNING: Final = (
    streams.RunStarted,
    streams.RunResumed,
    streams.StepStarted,
    streams.TextChunk,
    streams.Thinking,
)
_NOT_RUNNING: Final = (streams.RunEnded, streams.RunPaused, streams.Suspended)


async def note_silence(
    chunks: AsyncIterator[StoredChunk], note: Callable[[int], None]
) -> AsyncGenerator[StoredChunk]:
    """The chunks as they come.

    Args:
        chunks: Of one session.
        note: Is given for how many seconds nothing has come, at longer and longer intervals.
    """
    silence, running = Silence(), False
    following: asyncio.Task[StoredChunk | None] | None = None
    try:
        while True:
            following = following or asyncio.create_task(_read_next(chunks))
            await asyncio.wait({following}, timeout=max(0.01, silence.wait_time) if running else None)
            if not following.done():
                seconds = silence.tell()
                if seconds is not None:
                    note(seconds)
                continue
            stored = following.result()
            if stored is None:
                return
            following = None
            silence.end(time.time() - stored.written_at / 1000)
            running = _runs_after(stored.chunk, running)
            yield stored
    finally:
        if following is not None:
            following.cancel()
            await asyncio.wait({following})


def _runs_after(chunk: ChunkBase, running: bool) -> bool:
    """Whether a turn runs when this chunk was written."""
    if isinstance(chunk, _NOT_RUNNING):
        return False
    return running or isinstance(chunk, _RUNNING)


async def _read_next(chunks: AsyncIterator[StoredChunk]) -> StoredChunk | None:
    return await anext(chunks, None)
