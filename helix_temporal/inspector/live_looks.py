"""When the stores are looked at though no chunk says that they have more, and how long none has come.

A turn's last chunk is written before its run is recorded as ended, and a worker that was killed writes none.
"""

import time
from collections.abc import Callable
from typing import Final

KEEP_ALIVE: Final = 15.0
AFTER_CHANGE: Final = (0.15, 0.5, 1.5, 4.0)
"""Seconds after which the stores are looked at when a turn has begun or ended."""
WHILE_RUNNING: Final = 5.0
"""Seconds between two looks while a turn runs, and after which chunks count as missing."""
SILENCE: Final = 10
"""Seconds from which on somebody who looks is told that nothing comes."""
_SHORTEST: Final = 0.02


class LiveLooks:
    """The times of one page's looks.

    Args:
        clock: Seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: list[float] = []
        self._heard = self._looked = clock()
        self._told = 0
        self._has_heard = False

    @property
    def are_chunks_missing(self) -> bool:
        """Whether the stores are right where the stream tells otherwise."""
        return self._silence() >= WHILE_RUNNING

    def begin(self) -> None:
        """A turn has begun or ended: look again in a moment, and some times after that."""
        now = self._clock()
        self._due = [now + each for each in AFTER_CHANGE]

    def hear(self, age: float) -> bool:
        """Chunks have come.  Whether somebody was told that none do.

        Args:
            age: Seconds since the last one was written, by clocks of others: it counts of the first alone,
                which may have been there for long.
        """
        was_told = self._told > 0
        self._heard = self._clock() - (0.0 if self._has_heard else age)
        self._has_heard, self._told = True, 0
        return was_told

    def wait_time(self, running: bool) -> float:
        """Seconds until the next look or sign of life."""
        wait = self._next_look(running) - self._clock()
        if running:
            wait = min(wait, self._next_told() - self._silence())
        return min(KEEP_ALIVE, max(_SHORTEST, wait))

    def take_due(self, running: bool) -> bool:
        """Whether it is time for a look; it is taken then."""
        now = self._clock()
        if now < self._next_look(running):
            return False
        self._due, self._looked = [each for each in self._due if each > now], now
        return True

    def tell_silence(self) -> int | None:
        """For how many seconds nothing has come, where that is new to who looks: 10, 20, 40, and so on."""
        wanted = self._next_told()
        silence = self._silence()
        if silence < wanted:
            return None
        while 2 * wanted <= silence:
            wanted *= 2
        self._told = wanted
        return wanted

    def _next_told(self) -> int:
        return max(SILENCE, 2 * self._told)

    def _silence(self) -> float:
        return self._clock() - self._heard

    def _next_look(self, running: bool) -> float:
        later = self._looked + WHILE_RUNNING if running else float("inf")
        return min([*self._due, later])
