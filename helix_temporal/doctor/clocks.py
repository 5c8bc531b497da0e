"""How far the clocks of servers are from this machine's.  Pure, but for the reading of this one."""

import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeVar

from helix_temporal.doctor.checks import Check, Status, make_check

T = TypeVar("T")

WARN_AFTER: Final = 2.0
"""Seconds of difference that show: times of stores and workers are compared by people and by deadlines."""
FAIL_AFTER: Final = 60.0
"""Seconds: deadlines of calls and of locks are then wrong, and requests to S3 soon refused (15 minutes)."""


class ClockQuestion(NamedTuple):
    """This machine's clock before and after a question, in seconds since 1970."""

    before: float
    after: float

    def find_difference(self, there: float, resolution: float = 0.0) -> float:
        """By how many seconds a clock is ahead, at least; negative where it is behind.

        Args:
            there: What it said, in seconds since 1970.
            resolution: It is cut to so many seconds.
        """
        earliest, latest = there - self.after, there + resolution - self.before
        if earliest > 0:
            return earliest
        return latest if latest < 0 else 0.0


async def ask_timed(question: Callable[[], Awaitable[T]]) -> tuple[T, ClockQuestion]:
    """An answer, and when it was asked for."""
    before = time.time()
    answer = await question()
    return answer, ClockQuestion(before, time.time())


def check_clock(about: str, difference: float) -> Check:
    """What is to be said of a server's clock."""
    off, side = abs(difference), "ahead of" if difference > 0 else "behind"
    status: Status = "ok" if off <= WARN_AFTER else "warning" if off <= FAIL_AFTER else "failed"
    if status == "ok":
        return make_check(about, "clock", status, "agrees with this machine's")
    said = f"is {off:.1f} s {side} this machine's, at most {WARN_AFTER:.0f} s expected; let both follow NTP"
    return make_check(about, "clock", status, said)
