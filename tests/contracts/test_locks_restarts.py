"""Servers of locks and usage that are killed again and again under eight workers."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from helix_temporal.devstack import Stack, Valkey, start_stack
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.protocols.locks import Lock
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.testing.builders import an_id
from helix_temporal.testing.contracts._usage_base import some_tokens

T = TypeVar("T")
Granted = list[tuple[int, int]]

WORKERS = 8
KILLS = 4
PAUSE = 0.5

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@dataclass
class Work:
    """What all workers together were told.

    Attributes:
        highest: The highest token that anyone has been granted.
        granted: Each grant's token, and the highest one known when it was first asked for.
        recorded: Ids of entries that were acknowledged.
        failures: Answers that did not come.
    """

    backend: Any
    highest: int = 0
    granted: Granted = field(default_factory=list)
    recorded: list[str] = field(default_factory=list)
    failures: int = 0

    async def go_on(self, ending: asyncio.Event) -> None:
        """Take the lock, record an entry, give the lock back; each call repeated until it is answered."""
        while not ending.is_set():
            before, claim = self.highest, an_id()
            lock = await self.until_answered(partial(self.take, claim))
            if lock is None:
                await asyncio.sleep(0.01)
                continue
            self.granted.append((lock.fencing_token, before))
            self.highest = max(self.highest, lock.fencing_token)
            entry = some_tokens("shared", id=claim)
            await self.until_answered(partial(self.backend.usage.record_entry, entry))
            self.recorded.append(claim)
            await self.until_answered(lock.release)

    async def goes_on_for(self, seconds: float) -> None:
        """Let them work for so long, and until somebody has been granted the lock meanwhile."""
        before = len(self.granted)
        await asyncio.sleep(seconds)
        async with asyncio.timeout(30):
            while len(self.granted) == before:  # noqa: ASYNC110 (the server may come back late)
                await asyncio.sleep(0.02)

    async def take(self, claim: str) -> Lock | None:
        """One attempt."""
        lock: Lock | None = await self.backend.locks.acquire("shared", ttl_ms=300, claim=claim)
        return lock

    async def until_answered(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat what was not answered."""
        while True:
            try:
                return await call()
            except StoreUnavailableError:
                self.failures += 1
                await asyncio.sleep(0.02)


async def survive(backend: Any, crash: Callable[[], None]) -> None:
    """Let workers work while the server is killed again and again, and look at what is left."""
    work, ending = Work(backend), asyncio.Event()
    working = [asyncio.create_task(work.go_on(ending)) for _ in range(WORKERS)]
    for _ in range(KILLS):
        await work.goes_on_for(PAUSE)
        await asyncio.to_thread(crash)
    await work.goes_on_for(PAUSE)
    ending.set()
    await asyncio.gather(*working)
    tokens = [token for token, _ in work.granted]
    assert work.failures > 0
    assert len(tokens) > KILLS
    assert len(set(tokens)) == len(tokens), "two grants had one token"
    assert all(token > before for token, before in work.granted), "a token went back"
    entries = await backend.usage.get_entries("shared")
    assert sorted(entry.id for entry in entries) == sorted(work.recorded)


async def test_a_redis_that_keeps_crashing_repeats_no_token_and_doubles_no_entry(own_valkey: Valkey) -> None:
    """It writes its log before it answers."""
    backend = RedisBackend(own_valkey.url)
    await survive(backend, partial(own_valkey.restart, kill=True))
    await backend.close()


@pytest.fixture
def own_postgres(open_directory: Path) -> Iterator[Stack]:
    """A server to kill."""
    programs = {key: value for key, value in os.environ.items() if key == "PATH" or key.endswith("_BINARY")}
    with start_stack(["postgres"], directory=open_directory, environment=programs) as stack:
        yield stack


async def test_a_postgres_that_keeps_crashing_repeats_no_token_and_doubles_no_entry(
    own_postgres: Stack,
) -> None:
    """All its processes end at once, and it recovers from its log."""
    backend = PostgresBackend(own_postgres.postgres.dsn, table_prefix="crashing_")
    await backend.migrations.run()

    def crash() -> None:
        server = own_postgres.servers["postgres"]
        assert server.pid is not None
        os.kill(server.pid, signal.SIGQUIT)
        server.restart()

    await survive(backend, crash)
    await backend.close()
