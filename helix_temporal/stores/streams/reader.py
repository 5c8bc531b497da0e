"""Readers of streams: what is stored first, page by page, then what comes."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar
from weakref import WeakSet

from helix_temporal.errors import StoreUnavailableError, StreamDroppedError
from helix_temporal.models.streams import ChunkBase, StoredChunk, StreamInfo, StreamStatus
from helix_temporal.stores.streams import rules
from helix_temporal.stores.streams.rules import View

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


class FeedSource(Protocol):
    """What a feed asks; see `Streams`."""

    async def _read_view(self, stream_id: str, after: int, limit: int) -> View | None: ...

    async def _wait_for_news(self, view: View, after: int, seconds: float) -> News: ...


class Feed:
    """What readers of one stream share.  A reader joins, waits, and leaves; the last one to leave ends it.

    Args:
        view: How the stream was when somebody first began to wait.
        seconds: To wait for news before the stream is looked at again.
    """

    def __init__(self, source: FeedSource, view: View, seconds: float) -> None:
        self._source, self._seconds = source, seconds
        self._view, self._tail = view, view.head.last
        self._recent: list[StoredChunk] = []
        self._bytes = self._looks = 0
        self._gone = False
        self._error: Exception | None = None
        self._came = asyncio.Event()
        self._readers: WeakSet[object] = WeakSet()
        self._task = asyncio.create_task(self._follow_stream(), name=f"stream {view.head.stream_id}")

    @property
    def running(self) -> bool:
        """Whether it can be waited for."""
        return not self._gone

    def add_reader(self, reader: object) -> None:
        """From now on the feed is kept for this one, until it leaves or is no more."""
        self._readers.add(reader)

    def remove_reader(self, reader: object) -> None:
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

    async def wait_for_chunks(self, seen: View, after: int) -> Sequence[StoredChunk] | View | None:
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
            chunks = self._chunks_after(after)
            if chunks is None or chunks:
                return chunks
            if self._error is not None:
                raise self._error
            if self._gone:
                return None
            if self._looks > looks or self._view.head.revision > seen.head.revision:
                return self._view
            await came.wait()

    def _chunks_after(self, position: int) -> Sequence[StoredChunk] | None:
        """What is remembered after a sequence; None if not all of it is."""
        start = position + 1 - (self._tail - len(self._recent) + 1)
        return None if start < 0 else self._recent[start : start + PAGE]

    async def _follow_stream(self) -> None:
        try:
            # Those that nobody holds any more have left without a word.
            while self._readers and await self._read_news():
                self._wake_readers()
                # Those who waited go on before the store is asked again, which takes its time.
                await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001 — whatever it is, it belongs to those who wait
            self._error = error
        finally:
            self._gone = True
            self._wake_readers()

    async def _read_news(self) -> bool:
        """Wait for news and remember them; False if the stream is not what it was."""
        head = self._view.head
        news = await self._source._wait_for_news(self._view, self._tail, self._seconds)  # noqa: SLF001
        if self._remember_chunks(news.chunks) and news.chunks and not news.look:
            return True
        view = await self._source._read_view(head.stream_id, self._tail, PAGE)  # noqa: SLF001
        if view is None or view.head.made != head.made or view.head.last < self._tail:
            return False
        if view.head.first > self._tail + 1:
            self._recent, self._bytes = [], 0
            self._tail = view.head.first - 1
        self._remember_chunks(view.chunks)
        self._view, self._looks = view, self._looks + 1
        return True

    def _remember_chunks(self, chunks: Sequence[StoredChunk]) -> bool:
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

    def _wake_readers(self) -> None:
        came, self._came = self._came, asyncio.Event()
        came.set()


T = TypeVar("T", ChunkBase, StoredChunk)


class StreamReading(Generic[T]):
    """`StreamReader` and `ResumableReader` over a source.

    Args:
        view: How the stream is now, with its first page after ``after``.
        feed: Gives the stream's feed, to wait with.
        shown: What of a chunk is given out.
        run_id: Only what writers of this run wrote.
        abandoned_after: See `StreamLimits`.
    """

    def __init__(
        self,
        source: FeedSource,
        view: View,
        after: int,
        feed: Callable[[View], Feed],
        shown: Callable[[StoredChunk], T],
        *,
        run_id: str | None,
        abandoned_after: float,
    ) -> None:
        self._source, self._join = source, feed
        self._shown: Callable[[StoredChunk], T] = shown
        self._run_id, self._abandoned_after = run_id, abandoned_after
        self._view, self._after, self._read = view, after, 0
        self._look: View | None = view
        self._ready: deque[StoredChunk] = deque()
        self._feed: Feed | None = None
        self._ended = self._live = False

    @property
    def status(self) -> StreamStatus:
        """See `StreamReader.status`."""
        return self._view.head.status

    @property
    def info(self) -> StreamInfo:
        """See `StreamReader.info`."""
        return self._view.head.info

    @property
    def last_sequence(self) -> int:
        """See `ResumableReader.last_sequence`."""
        return self._after

    def __aiter__(self) -> AsyncIterator[T]:
        """See `StreamReader.__aiter__`."""
        return self

    async def __anext__(self) -> T:
        """The next chunk that is wanted."""
        while True:
            while self._ready:
                chunk = self._ready.popleft()
                if chunk.sequence > self._after:
                    self._after = self._read = chunk.sequence
                    if self._run_id is None or self._run_id == chunk.run_id:
                        return self._shown(chunk)
            if self._ended:
                raise StopAsyncIteration
            try:
                await self._fetch_chunks()
            except StoreUnavailableError as error:
                self._leave_feed()
                raise StreamDroppedError(
                    f"stream {self._view.head.stream_id!r}: the connection was lost after chunk "
                    f"{self._after}; read on from there",
                    stream_id=self._view.head.stream_id,
                    last_sequence=self._after,
                ) from error

    async def aclose(self) -> None:
        """See `StreamReader.aclose`."""
        self._ended = True
        self._ready.clear()
        self._leave_feed()

    async def _fetch_chunks(self) -> None:
        """Get chunks that are ready, or come to the end."""
        view: View | None = self._view
        if not self._live:
            view = await self._look_at_stream()
        while view is not None and not self._end_if_over(view):
            # Joined anew each time: a feed ends by itself when its stream or its store does.
            found = await self._join_feed(view).wait_for_chunks(view, self._after)
            self._live = found is not None
            if not isinstance(found, View):
                self._ready.extend(found or ())
                return
            view = found
            if self._update_position(view) or view.head.last > self._after:
                self._live = False
                return

    async def _look_at_stream(self) -> View | None:
        """How the stream is, if all of it has been read; None if there is something to do before waiting."""
        view, self._look = self._look, None
        if view is None:
            view = await self._source._read_view(self._view.head.stream_id, self._after, PAGE)  # noqa: SLF001
        if view is None:
            raise self._stream_lost_error()
        if self._update_position(view):
            return None
        if view.head.last > self._after:
            self._add_page(view)
            return None
        return view

    def _update_position(self, view: View) -> bool:
        """Whether the place to read from is another than it was; the look is of no use then.

        Raises:
            StreamNotFoundError, StreamTruncatedError: See `StreamReader`.
        """
        head = view.head
        if head.made != self._view.head.made or head.last < self._read:
            raise self._stream_lost_error()
        self._view = view
        before, self._after = self._after, rules.reading_position(head, self._after)
        return before != self._after

    def _add_page(self, view: View) -> None:
        if not view.chunks or view.chunks[0].sequence != self._after + 1:
            # A server that was short of memory may have evicted them.
            first = view.chunks[0].sequence if view.chunks else view.head.last + 1
            raise rules.stream_truncated_error(view.head.stream_id, self._after + 1, first)
        self._ready.extend(view.chunks)

    def _end_if_over(self, view: View) -> bool:
        self._ended = rules.is_stream_over(view, self._abandoned_after)
        if self._ended:
            self._leave_feed()
        return self._ended

    def _join_feed(self, view: View) -> Feed:
        if self._feed is None or not self._feed.running:
            self._feed = self._join(view)
            self._feed.add_reader(self)
        return self._feed

    def _leave_feed(self) -> None:
        feed, self._feed, self._live = self._feed, None, False
        if feed is not None:
            feed.remove_reader(self)

    def _stream_lost_error(self) -> Exception:
        self._leave_feed()
        return rules.stream_not_found_error(self._view.head.stream_id)
