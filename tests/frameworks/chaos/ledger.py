"""What each writer was told, in a file of its own that outlives it."""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn that a writer began.

    Attributes:
        number: Of this writer's turns, from 0.
        begun_at: When it was first asked for, in the clock that all processes share (ns).
        acknowledged_at: When the adapter returned, by that clock; None if a
            writer never was told.
    """

    writer: str
    number: int
    begun_at: int
    acknowledged_at: int | None

    @property
    def name(self) -> str:
        """What its texts begin with."""
        return f"{self.writer}-{self.number}"


class Ledger:
    """Lines of one writer; a kill loses none that was written."""

    def __init__(self, directory: Path, writer: str) -> None:
        self._file = os.open(directory / writer, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, kind: str, number: int) -> None:
        """A turn was begun, or acknowledged."""
        os.write(self._file, (json.dumps([kind, number, time.monotonic_ns()]) + "\n").encode())


def read_turns(directory: Path, writer: str) -> list[Turn]:
    """The turns of a writer and of its predecessors, in order."""
    path = directory / writer
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    acknowledged = {number: at for kind, number, at in lines if kind == "acknowledged"}
    begun: dict[int, int] = {}
    for kind, number, at in lines:
        if kind == "begun":
            begun.setdefault(number, at)
    return [Turn(writer, number, at, acknowledged.get(number)) for number, at in begun.items()]
