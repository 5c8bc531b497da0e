"""Kills a process after each system call of a commit: ``python -m tests.contracts._session_crash_files``.

Arguments: a directory, and how many seeds.  Each attempt is a child that is forked off and leaves as by
SIGKILL; this process, which has no threads of its own then, looks at what it left.
"""

import asyncio
import os
import sys
from pathlib import Path

from helix_temporal.stores.file import FileThreads
from helix_temporal.stores.file._documents import Documents
from helix_temporal.stores.file.sessions import FileSessions
from tests._session_stores import store_over
from tests._sessions import Place
from tests.contracts._session_crashes import Attempt, Story

STEPS = ("locked", "created", "written", "synced", "renamed", "settled")
KILLED = 9


def place(directory: Path, dies_after: str = "") -> Place:
    """The directory; its user dies after that step of a write."""

    def after(done: str) -> None:
        if done == dies_after:
            os._exit(KILLED)

    documents = Documents(directory, after=after)
    return Place(FileSessions(documents), FileThreads(documents))


def killed(attempt: Attempt, directory: Path, dies_after: str) -> None:
    """Make the commit in a child that does not live to tell."""
    child = os.fork()
    if child == 0:
        asyncio.run(attempt.commit(store_over(place(directory, dies_after)).sessions))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == KILLED, f"{dies_after}: {status}"


def main(directory: Path, seeds: int) -> None:
    """All steps with all seeds."""
    for seed in range(seeds):
        for dies_after in STEPS:
            clean = store_over(place(directory))
            attempt = asyncio.run(Story(seed, f"{seed}-{dies_after}").prepare(clean))
            killed(attempt, directory, dies_after)
            clean = store_over(place(directory))
            there = asyncio.run(attempt.happened(clean.sessions))
            assert there == (dies_after in {"renamed", "settled"}), dies_after
            asyncio.run(attempt.check_after(clean.sessions))
            assert not list(directory.glob("*.tmp"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
