"""Readers: what is stored first, page by page, then what comes."""

from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

from helix_temporal.errors import StoreUnavailableError, StreamDroppedError
from helix_temporal.models.chunks import ChunkBase
from helix_temporal.models.streams import StoredChunk, StreamInfo, StreamStatus
from helix_temporal.stores import _stream_rules as rules
from helix_temporal.stores._stream_feed import PAGE, Feed, Source
from helix_temporal.stores._stream_rules import View

T = TypeVar("T", ChunkBase, StoredChunk)


class Reading(Generic[T]):
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
        source: Source,
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
                await self._fill()
            except StoreUnavailableError as error:
                self._leave()
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
        self._leave()

    async def _fill(self) -> None:
        """Get chunks that are ready, or come to the end."""
        view: View | None = self._view
        if not self._live:
            view = await self._looked()
        while view is not None and not self._over(view):
            # Joined anew each time: a feed ends by itself when its stream or its store does.
            found = await self._joined(view).wait(view, self._after)
            self._live = found is not None
            if not isinstance(found, View):
                self._ready.extend(found or ())
                return
            view = found
            if self._moved(view) or view.head.last > self._after:
                self._live = False
                return

    async def _looked(self) -> View | None:
        """How the stream is, if all of it has been read; None if there is something to do before waiting."""
        view, self._look = self._look, None
        if view is None:
            view = await self._source._view(self._view.head.stream_id, self._after, PAGE)  # noqa: SLF001
        if view is None:
            raise self._lost()
        if self._moved(view):
            return None
        if view.head.last > self._after:
            self._take_page(view)
            return None
        return view

    def _moved(self, view: View) -> bool:
        """Whether the place to read from is another than it was; the look is of no use then.

        Raises:
            StreamNotFoundError, StreamTruncatedError: See `StreamReader`.
        """
        head = view.head
        if head.made != self._view.head.made or head.last < self._read:
            raise self._lost()
        self._view = view
        before, self._after = self._after, rules.place(head, self._after)
        return before != self._after

    def _take_page(self, view: View) -> None:
        if not view.chunks or view.chunks[0].sequence != self._after + 1:
            # A server that was short of memory may have evicted them.
            first = view.chunks[0].sequence if view.chunks else view.head.last + 1
            raise rules.truncated(view.head.stream_id, self._after + 1, first)
        self._ready.extend(view.chunks)

    def _over(self, view: View) -> bool:
        self._ended = rules.over(view, self._abandoned_after)
        if self._ended:
            self._leave()
        return self._ended

    def _joined(self, view: View) -> Feed:
        if self._feed is None or not self._feed.running:
            self._feed = self._join(view)
            self._feed.join(self)
        return self._feed

    def _leave(self) -> None:
        feed, self._feed, self._live = self._feed, None, False
        if feed is not None:
            feed.leave(self)

    def _lost(self) -> Exception:
        self._leave()
        return rules.absent(self._view.head.stream_id)
