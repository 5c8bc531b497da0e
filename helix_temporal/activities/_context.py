"""What an activity knows of its own execution."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

from temporalio import activity

from helix_temporal.models.store_calls import SessionCall
from helix_temporal.stores.protocols.progress import Progress, no_progress

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


def attempt() -> int:
    """Which attempt of its activity this is, from 1 on."""
    return activity.info().attempt if activity.in_activity() else 1


def workflow_run() -> str:
    """A few letters that stand for the workflow run whose activity this is; empty outside of one."""
    run = activity.info().workflow_run_id if activity.in_activity() else None
    return hashlib.sha256(run.encode()).hexdigest()[:8] if run else ""


def operation_of(request: SessionCall) -> str:
    """The operation that a request is: the one it names, or this activity, the same for all its attempts."""
    if request.operation_id is not None:
        return request.operation_id
    info = activity.info()
    return f"{info.workflow_run_id or info.task_queue}/{info.activity_id}"


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
async def heartbeats(every: float, details: Callable[[], Sequence[Any]]) -> AsyncIterator[None]:
    """Heartbeat in the background with what the details are then: a beat without any would lose them."""
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    def beat() -> None:
        nonlocal timer
        activity.heartbeat(*details())
        timer = loop.call_later(every, beat)

    # Not at once: most activities end before the first beat, and each costs the server a transaction.
    timer = loop.call_later(every, beat)
    try:
        yield
    finally:
        timer.cancel()


@contextlib.asynccontextmanager
async def beating(every: float) -> AsyncIterator[Progress]:
    """Heartbeat in the background, carrying the progress that is reported.

    A lost worker is then noticed after the heartbeat time-out, a cancel arrives, and the next attempt
    knows what this one has finished.  Outside Temporal nobody listens.
    """
    if not activity.in_activity():
        yield no_progress
        return
    progress = _Beats(activity.info().heartbeat_details)
    async with heartbeats(every, progress.details):
        yield progress
