"""Commits of turns through the session store, against bare asyncpg."""

import asyncio
import contextlib
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from bench._bare_postgres import BarePostgres
from bench._counting import CountingDatabase
from bench._lab import Lab, in_turns, migrated, own_tables, per
from bench._report import Row, compared, told
from bench._workers import processor_ms
from bench.append import EPOCH, open_thread
from helix_temporal.models.checkpoints import NewRun, RunChange, StepCommit
from helix_temporal.models.states import MergeChanges, StateChange
from helix_temporal.models.stored_messages import EMPTY, StoredMessage
from helix_temporal.stores.memory.backend import MemoryBackend
from helix_temporal.stores.postgres import AsyncpgDatabase, PostgresBackend, PostgresThreads
from helix_temporal.stores.postgres.sessions import PostgresSessions
from helix_temporal.stores.protocols.hot import HotTier, StepAppend
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.stores.sqlite import SqliteBackend
from helix_temporal.stores.threads.hot_only import HotThreads

_RUN: Final = "run"
_COUNTED: Final = 10


@dataclass(slots=True)
class Place:
    """A session store, and the threads that lie with it."""

    store: RowSessions
    threads: HotTier

    @classmethod
    def of(cls, backend: Any) -> "Place":
        """The store of a backend."""
        return cls(RowSessions(backend.sessions, HotThreads(backend.threads)), backend.threads)

    async def begin(self) -> str:
        """A session with a live run and an empty thread."""
        session_id = f"bench-{uuid.uuid4().hex}"
        await open_thread(self.threads, session_id)
        await self.store.create_session(session_id, epoch=EPOCH)
        await self.store.start_run(session_id, NewRun(run_id=_RUN), epoch=EPOCH)
        return session_id

    async def commit_all(self, session_id: str, turns: "Turns") -> None:
        """Each turn in one commit, at the head that the one before left."""
        head = EMPTY
        for number, (user, answer) in enumerate(turns.steps, 1):
            step = StepAppend(session_id, EPOCH, head, (user,), answer, commits=True)
            change = StateChange(merge=MergeChanges(values={"note": turns.notes[number - 1]}), steps=1)
            result, _ = await self.store.save_state_and_promote_staging(
                session_id,
                change,
                StepCommit(step_id=f"step-{number}", run_id=_RUN, step_count=number),
                append=step,
                run=RunChange(step_count=number),
                epoch=EPOCH,
            )
            head = result.head


@dataclass(frozen=True, slots=True)
class Turns:
    """Turns of two messages of 1 KB and a state of 1 KB."""

    steps: Sequence[tuple[StoredMessage, StoredMessage]]
    notes: Sequence[str]

    @classmethod
    def make(cls, lab: Lab, count: int) -> "Turns":
        """So many of them."""
        return cls(lab.words.steps(count), [lab.words.text(1024) for _ in range(count)])


class Commits:
    """Commits on PostgreSQL, ours and bare, each on tables of its own."""

    def __init__(self, lab: Lab, ours: PostgresBackend, bare: BarePostgres) -> None:
        self.turns = Turns.make(lab, lab.sizes.commits)
        self.backend, self.place, self._bare = ours, Place.of(ours), bare
        self._state = self._run = b""
        self.cpu: dict[str, list[float]] = {}

    async def measure_bodies(self) -> None:
        """As many bytes of state and run as ours writes."""
        session_id = await self.place.begin()
        await self.place.commit_all(session_id, Turns(self.turns.steps[:1], self.turns.notes[:1]))
        prefix, fetch = self.backend.table_prefix, self.backend.database.fetchval
        self._state = await fetch(f'SELECT body FROM "{prefix}states" WHERE session_id = $1', session_id)
        self._run = await fetch(
            f'SELECT body FROM "{prefix}session_rows" WHERE session_id = $1 AND kind = $2', session_id, "run"
        )

    async def ours(self) -> float:
        """Seconds a commit."""
        session_id = await self.place.begin()
        server: int = await self.backend.database.fetchval("SELECT pg_backend_pid()")
        return await self._timed("ours", server, self.place.commit_all(session_id, self.turns))

    async def transaction(self) -> float:
        """Seconds a commit in a bare transaction."""
        return await self._each("transaction", self._bare.commit)

    async def statement(self) -> float:
        """Seconds a commit in one bare statement."""
        return await self._each("statement", self._bare.commit_at_once)

    async def _each(self, name: str, commit: Callable[..., Awaitable[None]]) -> float:
        session_id = f"bench-{uuid.uuid4().hex}"
        await self._bare.begin(session_id)

        async def run() -> None:
            for number, step in enumerate(self.turns.steps):
                await commit(session_id, number, step, self._state, self._run)

        return await self._timed(name, await self._bare.pid(), run())

    async def _timed(self, name: str, server: int, work: Awaitable[None]) -> float:
        """Seconds a commit; notes what client and server computed for it, in ms."""
        processes = {"client": os.getpid()} | ({"server": server} if psutil.pid_exists(server) else {})
        before, started = processor_ms(processes), time.perf_counter()
        await work
        spent, after = time.perf_counter() - started, processor_ms(processes)
        count = len(self.turns.steps)
        used = sum(after[each] - before[each] for each in processes) / count
        self.cpu.setdefault(name, []).append(used)
        return spent / count


@contextlib.asynccontextmanager
async def ours_and_bare(lab: Lab) -> AsyncIterator[tuple[PostgresBackend, BarePostgres]]:
    """Ours and the bare driver, each with empty tables."""
    mine, theirs = own_tables(), own_tables()
    for prefix in (mine, theirs):
        await migrated(lab.postgres, prefix)
    backend = PostgresBackend(lab.postgres, table_prefix=mine)
    bare = await BarePostgres.connect(lab.postgres, theirs)
    try:
        yield backend, bare
    finally:
        await asyncio.gather(backend.close(), bare.close())


async def commit(lab: Lab) -> list[Row]:
    """Commits of turns (state, two messages, checkpoint, run): bare asyncpg's, and the other backends'."""
    async with ours_and_bare(lab) as (backend, bare):
        commits = Commits(lab, backend, bare)
        await commits.measure_bodies()
        contestants = {
            "ours": commits.ours,
            "transaction": commits.transaction,
            "statement": commits.statement,
        }
        found = await in_turns(lab, "commit", contestants)
        round_trips = await _round_trips(lab, backend)
    ours = per(found["ours"], 1e3)
    rows = [
        compared(
            "PostgreSQL: commit of a turn",
            "ms",
            ours,
            per(found["transaction"], 1e3),
            at_most=1.6,
            note="state, 2 × 1 KB, checkpoint, run; floor: one bare transaction, a statement each",
        ),
        compared(
            "PostgreSQL: commit of a turn, against one statement",
            "ms",
            ours,
            per(found["statement"], 1e3),
            note="floor: the same rows by one bare statement",
        ),
        told(
            "  CPU of a commit, client and server",
            "ms",
            commits.cpu["ours"][1:],
            floor=statistics.median(commits.cpu["transaction"][1:]) or None,
            note="floor: the bare transaction's; says more than time where others use the machine",
        ),
        told("PostgreSQL: round trips of a commit", "round trips", [round_trips], at_most=3),
    ]
    return [*rows, *await _elsewhere(lab)]


async def _round_trips(lab: Lab, backend: PostgresBackend) -> float:
    database = CountingDatabase(AsyncpgDatabase.from_dsn(lab.postgres))
    threads = PostgresThreads(database, table_prefix=backend.table_prefix)
    rows = PostgresSessions(database, table_prefix=backend.table_prefix)
    place = Place(RowSessions(rows, HotThreads(threads)), threads)
    try:
        session_id = await place.begin()
        database.reset()
        await place.commit_all(session_id, Turns.make(lab, _COUNTED))
        return database.round_trips / _COUNTED
    finally:
        await database.close()


async def _elsewhere(lab: Lab) -> list[Row]:
    """The same commit on the other backends, for comparison."""
    turns, settings = Turns.make(lab, lab.sizes.commits), lab.own()
    assert settings.redis_url is not None
    with tempfile.TemporaryDirectory(prefix="helix-bench-") as directory:
        backends: dict[str, Any] = {
            "Redis": RedisBackend(settings.redis_url, prefix=settings.redis_prefix),
            "SQLite": SqliteBackend(Path(directory, "helix.db")),
            "memory": MemoryBackend(),
        }

        def contestant(place: Place) -> Any:
            async def run() -> float:
                session_id = await place.begin()
                started = time.perf_counter()
                await place.commit_all(session_id, turns)
                return (time.perf_counter() - started) / len(turns.steps)

            return run

        try:
            contestants = {name: contestant(Place.of(each)) for name, each in backends.items()}
            found = await in_turns(lab, "commit elsewhere", contestants)
        finally:
            await asyncio.gather(*(each.close() for each in backends.values()))
    note = f"{len(turns.steps)} turns in one session"
    return [told(f"{name}: commit of a turn", "ms", per(found[name], 1e3), note=note) for name in found]
