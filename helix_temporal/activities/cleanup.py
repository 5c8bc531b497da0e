"""Activities ``helix.cleanup.*``: sessions past their time, sessions nobody uses, operations long done."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from temporalio import activity

from helix_temporal.activities._context import beating
from helix_temporal.activities._errors import typed
from helix_temporal.models.cleanup import (
    AgeCleanupSummary,
    CleanUpExpiredInput,
    CleanUpOldInput,
    CleanupSummary,
    PurgeOperationsInput,
    PurgeOperationsResult,
)
from helix_temporal.stores.cleanup import Cleanup


class CleanupActivities:
    """Cleans up the session store.

    Args:
        beat_every: Seconds between background heartbeats.
    """

    def __init__(self, cleanup: Cleanup, *, beat_every: float = 1.0) -> None:
        self._cleanup, self._beat_every = cleanup, beat_every

    @activity.defn(name="helix.cleanup.expired")
    @typed
    async def expired(self, request: CleanUpExpiredInput) -> CleanupSummary:
        """End sessions past their time; the next attempt goes on where this one was."""
        details = activity.info().heartbeat_details
        cursor, summary = _resumed(details)
        async with _beating(self._beat_every, *details[:2]) as beat:

            def report(at: str | None, done: CleanupSummary) -> None:
                beat(at, done.model_dump(mode="json"))

            return await self._cleanup.expired(request, report, cursor=cursor, summary=summary)

    @activity.defn(name="helix.cleanup.old")
    @typed
    async def old(self, request: CleanUpOldInput) -> AgeCleanupSummary:
        """Delete sessions that nobody has changed for long."""
        async with beating(self._beat_every):
            return await self._cleanup.old(request)

    @activity.defn(name="helix.cleanup.operations")
    @typed
    async def operations(self, request: PurgeOperationsInput) -> PurgeOperationsResult:
        """Forget operations of long ago."""
        async with beating(self._beat_every):
            return PurgeOperationsResult(purged=await self._cleanup.operations(request.older_than_ms))


def _resumed(details: Sequence[Any]) -> tuple[str | None, CleanupSummary | None]:
    if len(details) < 2:
        return None, None
    return details[0], CleanupSummary.model_validate(details[1])


@contextlib.asynccontextmanager
async def _beating(every: float, *details: Any) -> AsyncIterator[Callable[..., None]]:
    """Heartbeat in the background with the details that were given last.

    A page of sessions with many snapshots takes longer than the heartbeat time-out; and a beat without
    the details of the attempt before would lose them.
    """
    last = details

    def beat(*given: Any) -> None:
        nonlocal last
        last = given
        activity.heartbeat(*last)

    async def again() -> None:
        while True:
            await asyncio.sleep(every)
            activity.heartbeat(*last)

    task = asyncio.create_task(again())
    try:
        yield beat
    finally:
        task.cancel()
        await asyncio.wait([task])
