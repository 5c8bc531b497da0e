"""How often something is tried again, and after how long: one rule for all parts."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from helix_temporal.errors import StoreUnavailableError

T = TypeVar("T")

ATTEMPTS: Final = 5
"""Of one call, where a store does not answer: each repeats the first one, and adds nothing to it."""


def retry_pause(attempt: int, *, first: float, longest: float) -> float:
    """Seconds before a try after ``attempt`` (from 0): ``first``, doubled each time up to ``longest``.

    A fifth to all of it, by chance: contenders that failed together do not come back together.
    """
    return random.uniform(0.2, 1.0) * min(first * 2.0 ** min(attempt, 30), longest)  # noqa: S311 (no secret)


async def repeat_unanswered(do: Callable[[], Awaitable[T]]) -> T:
    """What ``do`` answers, asked up to `ATTEMPTS` times where a store does not answer.

    Raises:
        StoreUnavailableError: It did not answer `ATTEMPTS` times; a change may be made or not.
    """
    for attempt in range(ATTEMPTS - 1):
        try:
            return await do()
        except StoreUnavailableError:
            await asyncio.sleep(retry_pause(attempt, first=0.1, longest=2.0))
    return await do()
