"""Kills a process around each statement of a commit: ``python -m tests.contracts._session_crash_sqlite``.

Arguments: a database file, and how many seeds.  Each attempt is a child that is forked off and leaves as by
SIGKILL; this process, which has no threads of its own then, looks at what it left.
"""

import asyncio
import itertools
import os
import sys
from pathlib import Path
from typing import Any

from helix_temporal.stores.sqlite import Database, SqliteSessions, SqliteThreads
from helix_temporal.testing.contracts.session_store import OpenSessions
from tests._session_stores import store_over
from tests._sessions import Place
from tests.contracts._session_crashes import STORIES, AnyStory, AppendAttempt, AppendStory, Attempt, Story

KILLED = 9


class DyingConnection:
    """A connection whose process is gone before or after one of its calls."""

    def __init__(self, inner: Any, dies_at: int) -> None:
        self._inner, self._left = inner, dies_at

    def __getattr__(self, name: str) -> Any:
        """The inner one's method, with a point before it and one after it."""
        found = getattr(self._inner, name)
        if name not in {"execute_fetchall", "executemany", "commit"}:
            return found

        async def call(*args: Any) -> Any:
            self._die()
            answer = await found(*args)
            self._die()
            return answer

        return call

    def _die(self) -> None:
        self._left -= 1
        if self._left == 0:
            os._exit(KILLED)


class DyingDatabase(Database):
    """Counts the points of its writer from the first write on."""

    def __init__(self, file: Path, dies_at: int) -> None:
        super().__init__(file)
        self._dies_at = dies_at

    async def _prepare_writer(self) -> Any:
        return DyingConnection(await super()._prepare_writer(), self._dies_at)


def sessions_of(database: Database) -> OpenSessions:
    """The session store in a database."""
    threads = SqliteThreads(database)
    return store_over(Place(SqliteSessions(database, threads), threads))


async def prepare(file: Path, story: Story | AppendStory) -> Attempt | AppendAttempt:
    """What there is before the commit."""
    database = Database(file)
    try:
        return await story.prepare(sessions_of(database))
    finally:
        await database.close()


async def look_after(file: Path, attempt: Attempt | AppendAttempt) -> bool:
    """Whether the commit happened; and all that must be true then."""
    database = Database(file)
    try:
        sessions = sessions_of(database).sessions
        happened = await attempt.happened(sessions)
        await attempt.check_after(sessions)
        return happened
    finally:
        await database.close()


def killed(attempt: Attempt | AppendAttempt, file: Path, dies_at: int) -> bool:
    """Make the commit in a child; whether it did not live to tell."""
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(attempt.commit(sessions_of(DyingDatabase(file, dies_at)).sessions))
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in {0, KILLED}, f"point {dies_at}: {status}"
    return code == KILLED


def main(file: Path, seeds: int, story: AnyStory) -> None:
    """All points with all seeds; nothing happens up to one of them, and all of it from there on."""
    for seed in range(seeds):
        outcomes: list[bool] = []
        for point in itertools.count(1):
            attempt = asyncio.run(prepare(file, story(seed, f"{story.__name__}{seed}-{point}")))
            died = killed(attempt, file, point)
            outcomes.append(asyncio.run(look_after(file, attempt)))
            if not died:
                break
        assert len(outcomes) >= 10, outcomes
        assert outcomes == sorted(outcomes), outcomes
        assert outcomes.count(True) >= 2, outcomes


if __name__ == "__main__":
    for each in STORIES:
        main(Path(sys.argv[1]), int(sys.argv[2]), each)
