"""Streams in this process: for tests and for programs of one process; gone with it."""

import asyncio
import contextlib
import time
from collections.abc import Callable

from helix_temporal.models.states import is_past
from helix_temporal.models.streams import DEFAULT_LIMITS, ChunkBase, StreamLimits, StreamStatus
from helix_temporal.stores.streams.reader import News
from helix_temporal.stores.streams.rules import Batch, Refused, StatusChange, StreamLog, View, Written
from helix_temporal.stores.streams.store import Streams


class MemoryStreams(Streams):
    """`StreamStore` in a dict.  For the tasks of one process only; restarts forget it.

    Args:
        limits: What is kept; streams that have expired are removed when another one is made.
        clock: Seconds since 1970.
    """

    def __init__(
        self, limits: StreamLimits = DEFAULT_LIMITS, *, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(limits)
        self._clock = clock
        self._logs: dict[str, StreamLog] = {}
        self._came: dict[str, asyncio.Event] = {}

    # -- for tests

    def clear(self) -> None:
        """Forget all streams."""
        for stream_id in [*self._logs]:
            self._forget_stream(stream_id)

    def get_all_stream_ids(self) -> list[str]:
        """In order."""
        return sorted(each for each in [*self._logs] if self._find_log(each) is not None)

    def get_status_sync(self, stream_id: str) -> StreamStatus | None:
        """As `get_info` has it."""
        log = self._find_log(stream_id)
        return None if log is None or log.head is None else log.head.status

    def get_chunks_sync(self, stream_id: str) -> list[ChunkBase]:
        """All that is kept."""
        log = self._find_log(stream_id)
        return [] if log is None else [stored.chunk for stored in log.chunks]

    # -- the operations; all but `_wait_for_news` await nothing, so each is atomic on its event loop

    async def _append_batch(self, batch: Batch) -> Written | Refused:
        log = self._find_log(batch.stream_id)
        if log is None:
            log = StreamLog()
            if batch.create:
                self._remove_expired()
                self._logs[batch.stream_id] = log
        answer = log.append_batch(batch, self._read_clock(), self.limits.max_chunks)
        self._wake_readers(batch.stream_id)
        return answer

    async def _read_view(self, stream_id: str, after: int, limit: int) -> View | None:
        log = self._find_log(stream_id)
        if log is None or log.head is None:
            return None
        return View(log.head, self._read_clock(), log.chunks_after(after, limit))

    async def _change_status(self, change: StatusChange) -> int | None:
        log = self._find_log(change.before.stream_id)
        last = None if log is None else log.change_status(change, self._read_clock())
        self._wake_readers(change.before.stream_id)
        return last

    async def _drop_stream(self, stream_id: str) -> bool:
        there = self._find_log(stream_id) is not None
        self._forget_stream(stream_id)
        return there

    async def _wait_for_news(self, view: View, after: int, seconds: float) -> News:
        stream_id = view.head.stream_id
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._has_news(view, after):
                    await self._came.setdefault(stream_id, asyncio.Event()).wait()
        return News(look=True)

    def _has_news(self, view: View, after: int) -> bool:
        log = self._find_log(view.head.stream_id)
        if log is None or log.head is None:
            return True
        return log.head.last > after or log.head.revision != view.head.revision

    def _find_log(self, stream_id: str) -> StreamLog | None:
        log, ttl = self._logs.get(stream_id), self.limits.ttl
        if log is None or log.head is None or ttl is None:
            return log
        if not is_past(log.head.updated_at + ttl * 1000, self._read_clock()):
            return log
        self._forget_stream(stream_id)
        return None

    def _remove_expired(self) -> None:
        for stream_id in [*self._logs]:
            self._find_log(stream_id)

    def _forget_stream(self, stream_id: str) -> None:
        self._logs.pop(stream_id, None)
        self._wake_readers(stream_id)

    def _wake_readers(self, stream_id: str) -> None:
        if (came := self._came.pop(stream_id, None)) is not None:
            came.set()

    def _read_clock(self) -> int:
        return int(self._clock() * 1000)
