"""Activities ``helix.cleanup.*``: sessions past their time, sessions nobody uses, operations long done."""

from collections.abc import Sequence
from typing import Any

from temporalio import activity

from helix_temporal.activities._context import beating, heartbeats
from helix_temporal.activities._errors import typed
from helix_temporal.activities._limits import limited_as
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
    @limited_as("maintenance")
    async def expired(self, request: CleanUpExpiredInput) -> CleanupSummary:
        """End sessions past their time; the next attempt goes on where this one was."""
        last = list(activity.info().heartbeat_details[:2])
        cursor, summary = _resumed(last)

        def report(at: str | None, done: CleanupSummary) -> None:
            last[:] = at, done.model_dump(mode="json")
            activity.heartbeat(*last)

        # A page of sessions with many snapshots takes longer than the heartbeat time-out.
        async with heartbeats(self._beat_every, lambda: last):
            return await self._cleanup.expired(request, report, cursor=cursor, summary=summary)

    @activity.defn(name="helix.cleanup.old")
    @typed
    @limited_as("maintenance")
    async def old(self, request: CleanUpOldInput) -> AgeCleanupSummary:
        """Delete sessions that nobody has changed for long."""
        async with beating(self._beat_every):
            return await self._cleanup.old(request)

    @activity.defn(name="helix.cleanup.operations")
    @typed
    @limited_as("maintenance")
    async def operations(self, request: PurgeOperationsInput) -> PurgeOperationsResult:
        """Forget operations of long ago."""
        async with beating(self._beat_every):
            return PurgeOperationsResult(purged=await self._cleanup.operations(request.older_than_ms))


def _resumed(details: Sequence[Any]) -> tuple[str | None, CleanupSummary | None]:
    if len(details) < 2:
        return None, None
    return details[0], CleanupSummary.model_validate(details[1])
