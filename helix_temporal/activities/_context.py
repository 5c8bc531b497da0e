"""What an activity knows of its own execution."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from temporalio import activity

from helix_temporal.stores.protocols.threads import Progress

MICROSECONDS: Final = 1_000_000
_NAMES_IN_BEAT: Final = 500


def scheduled_epoch() -> int:
    """The epoch that an open takes: when it was scheduled, in µs, the same for all its attempts.

    Whatever is scheduled later has a higher one; also after a terminate or a reset.
    """
    return int(activity.info().scheduled_time.timestamp() * MICROSECONDS)


def default_owner() -> str:
    """Who opens when no session workflow says so: the workflow, or the standalone activity."""
    info = activity.info()
    return info.workflow_run_id or info.activity_id


class _Beats:
    """A `Progress` whose state travels in heartbeats."""

    def __init__(self, details: Sequence[Any]) -> None:
        self._names: list[str] = list(details[3]) if len(details) > 3 else []
        self.finished = frozenset(self._names)
        self._last: tuple[str, int, int] | None = None

    def __call__(self, what: str, number: int, size: int, name: str = "") -> None:
        self._last = what, number, size
        if name and len(self._names) < _NAMES_IN_BEAT:
            self._names.append(name)

    def details(self) -> Sequence[Any]:
        """What was moved last, its number, its bytes, and the names that need not be moved again."""
        return (*self._last, self._names) if self._last else ()


@contextlib.asynccontextmanager
async def beating(every: float) -> AsyncIterator[Progress]:
    """Heartbeat in the background, carrying the progress that is reported.

    A lost worker is then noticed after the heartbeat time-out, a cancel arrives, and the next attempt
    knows what this one has finished.
    """
    progress = _Beats(activity.info().heartbeat_details)

    async def beat() -> None:
        while True:
            activity.heartbeat(*progress.details())
            await asyncio.sleep(every)

    task = asyncio.create_task(beat())
    try:
        yield progress
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
