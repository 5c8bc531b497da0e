"""How long to wait before something is tried again: one rule for stores, archive and client."""

import random


def retry_pause(attempt: int, *, first: float, longest: float) -> float:
    """Seconds before a try after ``attempt`` (from 0): ``first``, doubled each time up to ``longest``.

    A fifth to all of it, by chance: contenders that failed together do not come back together.
    """
    return random.uniform(0.2, 1.0) * min(first * 2.0 ** min(attempt, 30), longest)  # noqa: S311 (no secret)
