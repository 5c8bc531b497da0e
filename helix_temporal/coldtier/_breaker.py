"""Pure: whether a step tries the archive, by what became of earlier tries.  One a worker process."""

from typing import Final

THREADS: Final = 3
"""So many different threads must fail in a row."""
PAUSE_SECONDS: Final = 1.0
"""While it is open one step in so many seconds tries the archive."""


class Breaker:
    """Keeps steps from waiting for an archive that answers nobody.

    A slow or failed PUT of one thread says nothing of another.  The breaker opens when `THREADS` different
    threads have failed and none has succeeded meanwhile; the next success, of whatever thread, closes it.
    """

    def __init__(self) -> None:
        self._failed: set[str] = set()
        self._next_try = 0.0

    @property
    def is_open(self) -> bool:
        """Whether steps go without the archive."""
        return len(self._failed) >= THREADS

    def allows(self, now: float) -> bool:
        """Whether a step may try the archive; while it is open this counts as the try."""
        if not self.is_open:
            return True
        if now < self._next_try:
            return False
        self._next_try = now + PAUSE_SECONDS
        return True

    def fail(self, thread_id: str, now: float) -> None:
        """A try for this thread failed."""
        if not self.is_open:
            self._failed.add(thread_id)
            self._next_try = now + PAUSE_SECONDS

    def succeed(self) -> None:
        """The archive has answered, whatever it said."""
        self._failed.clear()
