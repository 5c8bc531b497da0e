"""What happened outside the sessions: model calls that were made and paid, effects of tools."""

import json
import os
import time
from pathlib import Path
from typing import Any

Entry = dict[str, Any]


class Ledger:
    """Lines of JSON in a file; several processes may write at once."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, kind: str, **facts: object) -> None:
        """Add an entry; ``at`` is the clock that all processes of a machine share, in ns."""
        entry = {"kind": kind, "at": time.monotonic_ns(), "pid": os.getpid(), **facts}
        os.write(self._file, (json.dumps(entry) + "\n").encode())


def read_ledger(path: Path) -> list[Entry]:
    """All entries, in the order in which they were written."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]
