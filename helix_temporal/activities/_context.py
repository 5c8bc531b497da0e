"""What an activity knows of its own execution."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from temporalio import activity

from helix_temporal.stores.protocols.threads import Progress

MICROSECONDS = 1_000_000


def scheduled_epoch() -> int:
    """The epoch that an open takes: when it was scheduled, in µs, the same for all its attempts.

    Whatever is scheduled later has a higher one; also after a terminate or a reset.
    """
    return int(activity.info().scheduled_time.timestamp() * MICROSECONDS)


def default_owner() -> str:
    """Who opens when no session workflow says so: the workflow, or the standalone activity."""
    info = activity.info()
    return info.workflow_run_id or info.activity_id


@contextlib.asynccontextmanager
async def beating(every: float) -> AsyncIterator[Progress]:
    """Heartbeat in the background, carrying the progress that is reported.

    A lost worker is then noticed after the heartbeat time-out, and a cancel arrives.
    """
    details: list[object] = []

    def progress(*what: object) -> None:
        details[:] = what

    async def beat() -> None:
        while True:
            activity.heartbeat(*details)
            await asyncio.sleep(every)

    task = asyncio.create_task(beat())
    try:
        yield progress
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
