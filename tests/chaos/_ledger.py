"""Books outside the system: what models were paid for, what tools did, what was appended.

One line an event in a file that every process appends to; a killed process loses nothing it wrote.
"""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """One line.

    Attributes:
        kind: ``model``, ``appended``, ``tool``.
        at: Nanoseconds of the host's monotonic clock, which all processes share.
    """

    kind: str
    at: int
    pid: int
    facts: dict[str, Any] = field(default_factory=dict)


class Ledger:
    """Appends events to a file, one write each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def write(self, kind: str, **facts: Any) -> None:
        """Note that something happens now."""
        if self._file is None:
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        line = json.dumps([kind, time.monotonic_ns(), os.getpid(), facts])
        os.write(self._file, line.encode() + b"\n")

    @property
    def size(self) -> int:
        """In bytes: what is written from now on begins here."""
        return self.path.stat().st_size if self.path.exists() else 0

    def read(self, after: int = 0) -> Iterator[Event]:
        """All events so far, or since the book was so large, in the order in which they were written."""
        if self.path.exists():
            with self.path.open("rb") as book:
                book.seek(after)
                lines = book.read().splitlines()
            for line in lines:
                yield Event(*json.loads(line))

    def close(self) -> None:
        """Give the file back."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
