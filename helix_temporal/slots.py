"""Activity slots of a worker: how many are taken, by what, and for how long all of them are.

Model calls, tools and store operations share them.  While tools have them all, a read, a `stop` and the first
message of a session wait for one, so a worker says so: in its answer to probes, and in its log.
"""

import asyncio
import logging
import time
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from helix_temporal.activities._runtime import wait_for_drain_end

logger = logging.getLogger(__name__)

TOLD_AFTER: Final = 10.0
"""Seconds that all slots are taken until the log says so."""
TOLD_EVERY: Final = 300.0
"""Seconds until it says so again."""
REFILLED_WITHIN: Final = 1.0
"""Seconds in which a free slot gets the next task where tasks wait: all slots are taken all the same."""
_NAMED: Final = 5


@dataclass(slots=True)
class DrainedActivities:
    """How the activities ended that still ran when a worker was told to stop.

    Attributes:
        finished: So many came to a result.
        failed: So many raised an error.
        cut: So many were cancelled, by the worker or by whoever had them run.
    """

    finished: int = 0
    failed: int = 0
    cut: int = 0

    def describe(self) -> str:
        """In a sentence, for people."""
        total = self.finished + self.failed + self.cut
        if total == 0:
            return "no activity was running"
        if total == self.finished:
            return f"what was running has finished ({_count_activities(total)})"
        return (
            f"of {_count_activities(total)} that ran, finished: {self.finished}, failed: {self.failed}, "
            f"cut off: {self.cut}; what is still wanted of them is run again"
        )


class ActivitySlots(Interceptor):
    """Counts the activities that a worker runs, and logs, once for the worker, that it runs all it may.

    Args:
        most: So many it may run at once; None if that is not known.
        task_queue: The worker's.

    Attributes:
        drained: How those ended that ran when `begin_drain` was called, or began later.
    """

    def __init__(self, most: int | None, task_queue: str = "") -> None:
        self._most, self._task_queue = most, task_queue
        self.drained = DrainedActivities()
        self._running: Counter[str] = Counter()
        self._full_since: float | None = None
        self._freed_at: float | None = None
        self._told_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._end_of_drain = asyncio.Event()

    @property
    def count(self) -> int:
        """How many run."""
        return self._running.total()

    @property
    def are_all_taken(self) -> bool:
        """Whether the worker runs as many as it may."""
        return self._most is not None and self.count >= self._most

    @property
    def taken_for(self) -> float | None:
        """Seconds for which all have been taken, moments between two tasks aside; None if one is free."""
        if self._full_since is None:
            return None
        now = time.monotonic()
        if self._freed_at is not None and now - self._freed_at >= REFILLED_WITHIN:
            return None
        return now - self._full_since

    def describe(self) -> dict[str, str]:
        """What keeps a worker from taking more, for probes; empty if nothing does."""
        taken = self.taken_for
        return {} if taken is None else {"activities": self._describe_taken(taken)}

    def begin_drain(self, within: timedelta) -> None:
        """The worker stops: log what it waits for, and for how long at most; count how activities end."""
        self.drained = DrainedActivities()
        asyncio.get_running_loop().call_later(within.total_seconds(), self._end_of_drain.set)
        if self.count:
            logger.info(
                "stopping: %s may still end, within %.0f s at most: %s",
                _count_activities(self.count),
                within.total_seconds(),
                self._list_running(),
            )

    async def wait_for_drain_end(self) -> None:
        """Come back once the worker was told to stop and the time that activities have to end is over."""
        await self._end_of_drain.wait()

    def stop(self) -> None:
        """Log nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 — the name in the SDK
        """Count it while it runs."""
        return _CountedActivity(next, self)

    def take(self, kind: str) -> None:
        """An activity of this type begins."""
        self._running[kind] += 1
        if not self.are_all_taken:
            return
        now = time.monotonic()
        if self.taken_for is None:
            self._full_since = now
        self._freed_at = None
        if self._timer is None:
            self._look_after(TOLD_AFTER)

    def free(self, kind: str) -> None:
        """It has ended."""
        was_full = self.are_all_taken
        self._running[kind] -= 1
        if was_full and not self.are_all_taken:
            self._freed_at = time.monotonic()

    def _look_after(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._tell)

    def _tell(self) -> None:
        self._timer, taken, now = None, self.taken_for, time.monotonic()
        if taken is None:
            self._tell_free()
            return
        if taken < TOLD_AFTER:
            self._look_after(TOLD_AFTER - taken)
            return
        if self._told_at is None or now - self._told_at >= TOLD_EVERY:
            self._told_at = now
            logger.warning("task queue %r: %s", self._task_queue, self._describe_taken(taken))
        self._look_after(TOLD_AFTER)

    def _tell_free(self) -> None:
        if self._told_at is not None and self._full_since is not None and self._freed_at is not None:
            seconds = self._freed_at - self._full_since
            logger.warning("task queue %r: a slot is free again, after %.0f s", self._task_queue, seconds)
        self._told_at = self._full_since = None

    def _list_running(self) -> str:
        return ", ".join(f"{count} {kind}" for kind, count in self._running.most_common(_NAMED) if count > 0)

    def _describe_taken(self, seconds: float) -> str:
        by = f" by {running}" if (running := self._list_running()) else ""
        return (
            f"all {self._most} activity slots of this worker are taken{by}, and have been for "
            f"{seconds:.0f} s; reads, stops and first messages of sessions wait for one: start more workers, "
            "or raise HELIX_MAX_CONCURRENT_ACTIVITIES"
        )


def _count_activities(count: int) -> str:
    return f"{count} {'activity' if count == 1 else 'activities'}"


class _CountedActivity(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, slots: ActivitySlots) -> None:  # noqa: A002
        super().__init__(next)
        self._slots = slots

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        info = activity.info()
        if info.is_local:  # these have slots of their own
            return await super().execute_activity(input)
        wait_for_drain_end.set(self._slots.wait_for_drain_end)
        self._slots.take(info.activity_type)
        try:
            result = await super().execute_activity(input)
        except asyncio.CancelledError:
            self._slots.drained.cut += 1
            raise
        except Exception:
            self._slots.drained.failed += 1
            raise
        else:
            self._slots.drained.finished += 1
            return result
        finally:
            self._slots.free(info.activity_type)
