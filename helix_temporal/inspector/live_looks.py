"""When the stores are looked at though no chunk says that they have more.

A turn's last chunk is written before its run is recorded as ended, and a worker that was killed writes none.
Nor does a session that is closed, or a store that answers again.
"""

import time
from collections.abc import Callable
from typing import Final

from helix_temporal.views.silence import Silence

KEEP_ALIVE: Final = 15.0
AFTER_CHANGE: Final = (0.15, 0.5, 1.5, 4.0)
"""Seconds after which the stores are looked at when a turn has begun or ended."""
WHILE_RUNNING: Final = 5.0
"""Seconds between two looks while a turn runs, and after which chunks count as missing."""
WHILE_UNREAD: Final = 10.0
"""Seconds between two looks while a store is away, or what it has is damaged."""
WHILE_IDLE: Final = 60.0
"""Seconds between two looks while nothing runs."""
_SHORTEST: Final = 0.02


class LiveLooks:
    """The times of one page's looks.

    Args:
        clock: Seconds.

    Attributes:
        silence: How long no chunk has come.
        is_unread: Not all could be read at the last look.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: list[float] = []
        self._looked = clock()
        self.silence = Silence(clock)
        self.is_unread = False

    @property
    def are_chunks_missing(self) -> bool:
        """Whether the stores are right where the stream tells otherwise."""
        return self.silence.seconds >= WHILE_RUNNING

    def begin(self) -> None:
        """A turn has begun or ended: look again in a moment, and some times after that."""
        now = self._clock()
        self._due = [now + each for each in AFTER_CHANGE]

    def wait_time(self, running: bool) -> float:
        """Seconds until the next look or sign of life."""
        wait = self._next_look(running) - self._clock()
        if running:
            wait = min(wait, self.silence.wait_time)
        return min(KEEP_ALIVE, max(_SHORTEST, wait))

    def take_due(self, running: bool) -> bool:
        """Whether it is time for a look; it is taken then."""
        now = self._clock()
        if now < self._next_look(running):
            return False
        self._due, self._looked = [each for each in self._due if each > now], now
        return True

    def _next_look(self, running: bool) -> float:
        pause = WHILE_RUNNING if running else WHILE_UNREAD if self.is_unread else WHILE_IDLE
        return min([*self._due, self._looked + pause])
