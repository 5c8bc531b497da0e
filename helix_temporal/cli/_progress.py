"""How far long work is, on standard error: a line that changes on a terminal, else a line now and then."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_TERMINAL_SECONDS: Final = 0.2
_LOG_SECONDS: Final = 10.0
_FIRST_SECONDS: Final = 2.0


class ProgressLine:
    """Tells of work that takes longer than two seconds.

    Args:
        terminal: Standard error is one.
    """

    def __init__(self, *, terminal: bool) -> None:
        self._terminal, self._shown = terminal, 0
        self._next = time.monotonic() + _FIRST_SECONDS

    def show(self, what: str, done: int, total: int, unit: str) -> None:
        """Say how far it is, if it is time to; nothing before two seconds have passed."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (_TERMINAL_SECONDS if self._terminal else _LOG_SECONDS)
        self._print(f"{what}: {done:,} of {total:,} {unit}")

    def _print(self, text: str) -> None:
        if self._terminal:
            sys.stderr.write(f"\r{text:<{self._shown}}")
            self._shown = len(text)
        else:
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            sys.stderr.write(f"\r{'':<{self._shown}}\r")
            sys.stderr.flush()
            self._shown = 0


@contextmanager
def open_progress() -> Iterator[ProgressLine]:
    """A line for work that may be long; it is taken away at its end."""
    line = ProgressLine(terminal=sys.stderr.isatty())
    try:
        yield line
    finally:
        line.clear()
