"""One process's look at one stream, shared by all of its readers who are up to date.

However many there are, the store is asked once.  Nobody waits for a reader that is slow: it falls out of
what is remembered here and reads for itself until it has caught up.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol
from weakref import WeakSet

from helix_temporal.models.streams import StoredChunk
from helix_temporal.stores._stream_rules import View

PAGE: Final = 500
"""Chunks that are read at once."""

LONGEST_WAIT: Final = 5.0
"""Seconds that a wait for news lasts at most."""

_MOST_CHUNKS: Final = 1000
_MOST_BYTES: Final = 4 * 1024 * 1024


class News:
    """What came: chunks without gaps, and whether something other than chunks happened."""

    __slots__ = ("chunks", "look")

    def __init__(self, chunks: Sequence[StoredChunk] = (), *, look: bool = False) -> None:
        self.chunks, self.look = chunks, look


class Source(Protocol):
    """What a feed asks; see `Streams`."""

    async def _view(self, stream_id: str, after: int, limit: int) -> View | None: ...

    async def _news(self, view: View, after: int, seconds: float) -> News: ...


class Feed:
    """See the module.  A reader joins, waits, and leaves; the last one to leave ends it.

    Args:
        view: How the stream was when somebody first began to wait.
        seconds: To wait for news before the stream is looked at again.
    """

    def __init__(self, source: Source, view: View, seconds: float) -> None:
        self._source, self._seconds = source, seconds
        self._view, self._tail = view, view.head.last
        self._recent: list[StoredChunk] = []
        self._bytes = self._looks = 0
        self._gone = False
        self._error: Exception | None = None
        self._came = asyncio.Event()
        self._readers: WeakSet[object] = WeakSet()
        self._task = asyncio.create_task(self._run(), name=f"stream {view.head.stream_id}")

    @property
    def running(self) -> bool:
        """Whether it can be waited for."""
        return not self._gone

    def join(self, reader: object) -> None:
        """From now on the feed is kept for this one, until it leaves or is no more."""
        self._readers.add(reader)

    def leave(self, reader: object) -> None:
        """The reader waits no more."""
        self._readers.discard(reader)
        if not self._readers:
            self._gone = True
            self._task.cancel()

    async def close(self) -> None:
        """End it; those who wait look for themselves."""
        self._gone = True
        self._task.cancel()
        await asyncio.wait([self._task])

    async def wait(self, seen: View, after: int) -> Sequence[StoredChunk] | View | None:
        """Chunks after a sequence, or how the stream is now; None tells to look for oneself.

        Args:
            seen: How the stream was when the reader last looked.
            after: Up to where it has read.

        Raises:
            HelixError: The store cannot be asked any more.
        """
        looks = self._looks
        while True:
            came = self._came
            chunks = self._after(after)
            if chunks is None or chunks:
                return chunks
            if self._error is not None:
                raise self._error
            if self._gone:
                return None
            if self._looks > looks or self._view.head.revision > seen.head.revision:
                return self._view
            await came.wait()

    def _after(self, position: int) -> Sequence[StoredChunk] | None:
        """What is remembered after a sequence; None if not all of it is."""
        start = position + 1 - (self._tail - len(self._recent) + 1)
        return None if start < 0 else self._recent[start : start + PAGE]

    async def _run(self) -> None:
        try:
            # Those that nobody holds any more have left without a word.
            while self._readers and await self._step():
                self._tell()
                # Those who waited go on before the store is asked again, which takes its time.
                await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001 — whatever it is, it belongs to those who wait
            self._error = error
        finally:
            self._gone = True
            self._tell()

    async def _step(self) -> bool:
        """Wait for news and remember them; False if the stream is not what it was."""
        head = self._view.head
        news = await self._source._news(self._view, self._tail, self._seconds)  # noqa: SLF001
        if self._extend(news.chunks) and news.chunks and not news.look:
            return True
        view = await self._source._view(head.stream_id, self._tail, PAGE)  # noqa: SLF001
        if view is None or view.head.made != head.made or view.head.last < self._tail:
            return False
        if view.head.first > self._tail + 1:
            self._recent, self._bytes = [], 0
            self._tail = view.head.first - 1
        self._extend(view.chunks)
        self._view, self._looks = view, self._looks + 1
        return True

    def _extend(self, chunks: Sequence[StoredChunk]) -> bool:
        """Remember chunks; False if some are missing before them."""
        for chunk in chunks:
            if chunk.sequence <= self._tail:
                continue
            if chunk.sequence != self._tail + 1:
                return False
            self._tail = chunk.sequence
            self._recent.append(chunk)
            self._bytes += len(chunk.body)
        if len(self._recent) > _MOST_CHUNKS or self._bytes > _MOST_BYTES:
            del self._recent[: -min(_MOST_CHUNKS // 2, len(self._recent) // 2 + 1)]
            self._bytes = sum(len(chunk.body) for chunk in self._recent)
        return True

    def _tell(self) -> None:
        came, self._came = self._came, asyncio.Event()
        came.set()
