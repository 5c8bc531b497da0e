"""How long nothing has come of a turn that runs, and when to tell it.

A worker that was killed writes no last chunk: its turn looks as if it went on until the next attempt begins.
"""

import time
from collections.abc import Callable
from typing import Final

SILENCE: Final = 10
"""Seconds from which on somebody who follows a turn is told that nothing comes."""


class Silence:
    """Since the last chunk that somebody who follows a session has got.

    Args:
        clock: Seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heard = clock()
        self._told = 0
        self._has_heard = False

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self._clock() - self._heard

    @property
    def wait_time(self) -> float:
        """Seconds until it is told next, if nothing comes; below 0 if it is time to."""
        return self._next_told() - self.seconds

    def end(self, age: float) -> bool:
        """Chunks have come.  Whether somebody was told that none do.

        Args:
            age: Seconds since the last one was written, by clocks of others: it counts of the first alone,
                which may have been there for long.
        """
        was_told = self._told > 0
        self._heard = self._clock() - (0.0 if self._has_heard else max(0.0, age))
        self._has_heard, self._told = True, 0
        return was_told

    def tell(self) -> int | None:
        """For how many seconds nothing has come, where that is new: 10, 20, 40, and so on; else None."""
        wanted, seconds = self._next_told(), self.seconds
        if seconds < wanted:
            return None
        while 2 * wanted <= seconds:
            wanted *= 2
        self._told = wanted
        return wanted

    def _next_told(self) -> int:
        return max(SILENCE, 2 * self._told)
