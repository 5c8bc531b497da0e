"""Servers of sessions that are killed again and again under eight workers: nothing lost, nothing doubled."""

import asyncio
import itertools
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from helix_temporal.devstack import Stack, Valkey, start_stack
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.testing.contracts._sessions_base import (
    changed,
    checkpoints_of,
    ids_of,
    loaded,
    step,
    talk,
)
from helix_temporal.testing.contracts._sessions_commit import an_append
from helix_temporal.testing.contracts.session_store import OpenSessions, SessionOpener
from tests._session_stores import sessions_over
from tests._sessions import LONG, postgres_place, redis_place

T = TypeVar("T")

WORKERS = 8
KILLS, PAUSE = (60, 1.0) if LONG else (4, 0.7)
SHARED = "shared"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600 if LONG else 120)]


@dataclass
class Worker:
    """Commits turns of a session of its own, and adds to the one that all share.

    Attributes:
        turns: Turns of its own session that were acknowledged.
        shared: Ids of messages of the shared session that were acknowledged.
        failures: Answers that did not come.
    """

    opened: OpenSessions
    name: str
    turns: list[str] = field(default_factory=list)
    shared: list[str] = field(default_factory=list)
    failures: int = 0

    async def work(self, ending: asyncio.Event) -> None:
        """One turn after the other, each step repeated until it is answered."""
        store = self.opened.sessions
        await self.until_answered(lambda: store.create_session(self.name, if_not_exists=True))
        await self.until_answered(lambda: store.append_messages(self.name, talk(1)))
        for number in itertools.count():
            if ending.is_set():
                return
            name = f"{self.name}-{number}"
            commit = await self.until_answered(partial(self.prepare, name))
            await self.until_answered(commit)
            self.turns.append(name)
            await self.until_answered(partial(self.share, name))
            self.shared.append(name)

    async def prepare(self, name: str) -> Callable[[], Awaitable[object]]:
        """A turn as it is committed at every attempt."""
        store = self.opened.sessions
        state = await loaded(store, self.name)
        turns = state.custom_state.get("turns", [])
        assert isinstance(turns, list)
        append = await an_append(self.opened.threads, self.name, *talk(2, f"{name}-"))
        after = changed(state, custom_state={"turns": [*turns, name]})
        return lambda: store.save_state_and_promote_staging(self.name, after, step(name), append=append)

    async def share(self, name: str) -> None:
        """Add to the session of all, under an operation id."""
        store = self.opened.sessions
        await store.append_messages(SHARED, talk(2, f"{name}-"), operation_id=f"append-{name}")
        await store.increment_step_count(SHARED, operation_id=f"count-{name}")

    async def until_answered(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat what was not answered."""
        while True:
            try:
                return await call()
            except StoreUnavailableError:
                self.failures += 1
                await asyncio.sleep(0.02)

    async def check(self) -> None:
        """What was acknowledged is there, once, and nothing else is."""
        state = await loaded(self.opened.sessions, self.name)
        assert state.custom_state["turns"] == self.turns
        assert state.version == 1 + len(self.turns)
        expected = [f"{turn}-{at}" for turn in self.turns for at in range(2)]
        assert await ids_of(self.opened.sessions, self.name) == ["m0", *expected]
        assert len(await checkpoints_of(self.opened.sessions, self.name)) == len(self.turns)


async def check_shared(store: SessionStore, workers: list[Worker]) -> None:
    """Every message once, those of a call together, those of a worker in its order; every step counted."""
    found = await ids_of(store, SHARED)
    expected = [each for worker in workers for each in worker.shared]
    assert sorted(found) == sorted(f"{each}-{at}" for each in expected for at in range(2))
    assert [each[:-1] for each in found[::2]] == [each[:-1] for each in found[1::2]]
    for worker in workers:
        mine = [each[:-2] for each in found[::2] if each.startswith(f"{worker.name}-")]
        assert mine == worker.shared
    assert (await loaded(store, SHARED)).step_count == len(expected)


async def survive(opener: SessionOpener, crash: Callable[[], None]) -> None:
    """Let workers work while the server is killed again and again."""
    async with opener() as opened:
        await opened.sessions.create_session(SHARED)
        workers = [Worker(opened, f"worker{number}") for number in range(WORKERS)]
        ending = asyncio.Event()
        working = [asyncio.create_task(worker.work(ending)) for worker in workers]
        for _ in range(KILLS):
            await asyncio.sleep(PAUSE)
            await asyncio.to_thread(crash)
        await asyncio.sleep(PAUSE)
        ending.set()
        await asyncio.gather(*working)
        assert sum(worker.failures for worker in workers) > 0
        for worker in workers:
            await worker.check()
        await check_shared(opened.sessions, workers)


async def test_a_redis_that_keeps_crashing_loses_and_doubles_nothing(own_valkey: Valkey) -> None:
    """It writes its log before it answers."""
    opener = sessions_over(partial(redis_place, own_valkey.url, "crashing:"))
    await survive(opener, partial(own_valkey.restart, kill=True))


@pytest.fixture
def own_postgres(open_directory: Path) -> Iterator[Stack]:
    """A server to kill."""
    programs = {key: value for key, value in os.environ.items() if key == "PATH" or key.endswith("_BINARY")}
    with start_stack(["postgres"], directory=open_directory, environment=programs) as stack:
        yield stack


async def test_a_postgres_that_keeps_crashing_loses_and_doubles_nothing(own_postgres: Stack) -> None:
    """All its processes end at once, and it recovers from its log."""
    dsn = own_postgres.postgres.dsn
    backend = PostgresBackend(dsn, table_prefix="crashing_")
    await backend.migrations.run()
    await backend.close()

    def crash() -> None:
        server = own_postgres.servers["postgres"]
        assert server.pid is not None
        os.kill(server.pid, signal.SIGQUIT)
        server.restart()

    await survive(sessions_over(partial(postgres_place, dsn, "crashing_")), crash)
