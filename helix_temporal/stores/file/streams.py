"""Streams in a directory: a file each, for the processes of one machine, by its clock."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final

from helix_temporal.models.ids import decode_id
from helix_temporal.models.streams import DEFAULT_LIMITS, StreamLimits
from helix_temporal.stores.file._disk import Disk
from helix_temporal.stores.file._stream_file import SUFFIX, StreamFile
from helix_temporal.stores.streams.reader import News
from helix_temporal.stores.streams.rules import Batch, Refused, StatusChange, View, Written
from helix_temporal.stores.streams.store import Streams

_QUICK: Final = 0.005
_SLOW: Final = 0.05
_GROWTH: Final = 1.3
_MOST_BYTES: Final = 64 * 1024 * 1024
_MOST_FILES: Final = 256
_SWEEP_EVERY: Final = 600.0


class FileStreams(Streams):
    """`StreamStore` for the processes of one machine.  Made by `FileBackend`.

    A reader looks every 5 to 50 ms whether its file has grown.  Writes survive the death of the process, not
    a power cut.  Files of streams that have expired are removed every ten minutes by whoever makes one.

    Args:
        directory: Made by the first write.
        limits: What is kept.
        clock: Seconds since 1970.
    """

    def __init__(
        self,
        directory: Path,
        limits: StreamLimits = DEFAULT_LIMITS,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(limits)
        self._disk = Disk(directory, lambda _: None)
        self._clock = clock
        self._files: OrderedDict[str, StreamFile] = OrderedDict()
        self._next_sweep = 0.0

    async def _append(self, batch: Batch) -> Written | Refused:
        if batch.create:
            await self._sweep()
        file, limits = self._file(batch.stream_id), self.limits
        return await asyncio.to_thread(file.append, batch, self._now(), limits.ttl, limits.max_chunks)

    async def _view(self, stream_id: str, after: int, limit: int) -> View | None:
        file = self._file(stream_id)
        return await asyncio.to_thread(file.view, after, limit, self._now(), self.limits.ttl)

    async def _change(self, change: StatusChange) -> int | None:
        file = self._file(change.before.stream_id)
        return await asyncio.to_thread(file.change, change, self._now())

    async def _drop(self, stream_id: str) -> bool:
        return await asyncio.to_thread(self._file(stream_id).drop, self._now(), self.limits.ttl)

    async def _news(self, view: View, after: int, seconds: float) -> News:
        stream_id, end = view.head.stream_id, time.monotonic() + seconds
        seen, pause = None, _QUICK
        while True:
            version = self._file(stream_id).version()
            if version != seen:
                # Looked at when it has changed; the first time, since it may have changed before.
                seen = version
                now = await self._view(stream_id, after, 1)
                if now is None or now.head.last > after or now.head.revision != view.head.revision:
                    return News(look=True)
                pause = _QUICK
            if time.monotonic() >= end:
                return News(look=True)
            await asyncio.sleep(pause)
            pause = min(_SLOW, pause * _GROWTH)

    def _file(self, stream_id: str) -> StreamFile:
        """What this process knows of a stream; others are forgotten when it is too much."""
        file = self._files.pop(stream_id, None) or StreamFile(self._disk, stream_id)
        self._files[stream_id] = file
        size = sum(each.size for each in self._files.values())
        while len(self._files) > 1 and (size > _MOST_BYTES or len(self._files) > _MOST_FILES):
            _, oldest = self._files.popitem(last=False)
            size -= oldest.size
        return file

    async def _sweep(self) -> None:
        if self.limits.ttl is None or (started := time.monotonic()) < self._next_sweep:
            return
        self._next_sweep = started + _SWEEP_EVERY
        await asyncio.to_thread(self._remove_expired, self._now(), self.limits.ttl)

    def _remove_expired(self, now: int, ttl: float) -> None:
        with self._disk.reporting("listing", ""):
            found = [*self._disk.directory.glob(f"*{SUFFIX}")]
        for path in found:
            try:
                old = path.stat().st_mtime * 1000 + ttl * 1000 < now
            except FileNotFoundError:
                continue
            stream_id = decode_id(path.name.removesuffix(SUFFIX))
            # One whose name is shortened stays until somebody uses its id again.
            if old and stream_id is not None:
                StreamFile(self._disk, stream_id).drop_expired(now, ttl)

    def _now(self) -> int:
        return int(self._clock() * 1000)
