"""Streams in this process: for tests and for programs of one process; gone with it."""

import asyncio
import contextlib
import time
from collections.abc import Callable

from helix_temporal.models.states import is_past
from helix_temporal.models.streams import DEFAULT_LIMITS, ChunkBase, StreamLimits, StreamStatus
from helix_temporal.stores.streams.reader import News
from helix_temporal.stores.streams.rules import Batch, Change, Refused, StreamLog, View, Written
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
            self._forget(stream_id)

    def get_all_stream_ids(self) -> list[str]:
        """In order."""
        return sorted(each for each in [*self._logs] if self._log(each) is not None)

    def get_status_sync(self, stream_id: str) -> StreamStatus | None:
        """As `get_info` has it."""
        log = self._log(stream_id)
        return None if log is None or log.head is None else log.head.status

    def get_chunks_sync(self, stream_id: str) -> list[ChunkBase]:
        """All that is kept."""
        log = self._log(stream_id)
        return [] if log is None else [stored.chunk for stored in log.chunks]

    # -- the operations; all but `_news` await nothing, so each is atomic on its event loop

    async def _append(self, batch: Batch) -> Written | Refused:
        log = self._log(batch.stream_id)
        if log is None:
            log = StreamLog()
            if batch.create:
                self._sweep()
                self._logs[batch.stream_id] = log
        answer = log.append(batch, self._now(), self.limits.max_chunks)
        self._tell(batch.stream_id)
        return answer

    async def _view(self, stream_id: str, after: int, limit: int) -> View | None:
        log = self._log(stream_id)
        if log is None or log.head is None:
            return None
        return View(log.head, self._now(), log.after(after, limit))

    async def _change(self, change: Change) -> int | None:
        log = self._log(change.before.stream_id)
        last = None if log is None else log.change(change, self._now())
        self._tell(change.before.stream_id)
        return last

    async def _drop(self, stream_id: str) -> bool:
        there = self._log(stream_id) is not None
        self._forget(stream_id)
        return there

    async def _news(self, view: View, after: int, seconds: float) -> News:
        stream_id = view.head.stream_id
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._has_news(view, after):
                    await self._came.setdefault(stream_id, asyncio.Event()).wait()
        return News(look=True)

    def _has_news(self, view: View, after: int) -> bool:
        log = self._log(view.head.stream_id)
        if log is None or log.head is None:
            return True
        return log.head.last > after or log.head.revision != view.head.revision

    def _log(self, stream_id: str) -> StreamLog | None:
        log, ttl = self._logs.get(stream_id), self.limits.ttl
        if log is None or log.head is None or ttl is None:
            return log
        if not is_past(log.head.updated_at + ttl * 1000, self._now()):
            return log
        self._forget(stream_id)
        return None

    def _sweep(self) -> None:
        for stream_id in [*self._logs]:
            self._log(stream_id)

    def _forget(self, stream_id: str) -> None:
        self._logs.pop(stream_id, None)
        self._tell(stream_id)

    def _tell(self, stream_id: str) -> None:
        if (came := self._came.pop(stream_id, None)) is not None:
            came.set()

    def _now(self) -> int:
        return int(self._clock() * 1000)
