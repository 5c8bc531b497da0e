"""Two tiers in which one attempt can be stopped at any point, as a worker that is starved is."""

import asyncio
from collections.abc import Awaitable
from contextvars import ContextVar

from helix_temporal.blobs import BlobStore
from helix_temporal.stores.protocols.hot import HotTier
from helix_temporal.testing.faults import BlobCall, BlobFault, FaultyBlobs
from helix_temporal.testing.faulty_hot import FaultyHot, HotCall

_zombie: ContextVar[bool] = ContextVar("_zombie", default=False)


class Stalls:
    """Wraps both tiers: ``hot`` and ``blobs`` are what a store is made of."""

    def __init__(self, hot: HotTier, blobs: BlobStore, prefix: str = "") -> None:
        self.prefix = prefix
        self.hot = FaultyHot(hot, pause=self._pause)
        self.blobs = FaultyBlobs(blobs, self._plan)
        self._left = -1
        self._gate = asyncio.Event()

    async def start(self, attempt: Awaitable[object], *, point: int) -> "asyncio.Task[object] | None":
        """Run an attempt up to its point of that number; None if it ended before."""
        self._left, self._gate = point, asyncio.Event()

        async def run() -> object:
            _zombie.set(True)
            return await attempt

        task = asyncio.create_task(run())
        while self._left >= 0 and not task.done():  # noqa: ASYNC110 (one step at a time)
            await asyncio.sleep(0)
        if not task.done():
            return task
        await task
        return None

    async def resume(self, task: "asyncio.Task[object]") -> BaseException | None:
        """Let the attempt wake up; returns what it ended with."""
        self._gate.set()
        while not task.done():
            await self.blobs.release()
            await asyncio.sleep(0.001)
        return task.exception()

    def _is_here(self) -> bool:
        if not _zombie.get() or self._left < 0:
            return False
        self._left -= 1
        return self._left < 0

    async def _pause(self, _call: HotCall) -> None:
        if self._is_here():
            await self._gate.wait()

    def _plan(self, _call: BlobCall) -> BlobFault | None:
        return BlobFault.DELAYED if self._is_here() else None
