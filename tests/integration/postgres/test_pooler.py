"""PostgreSQL behind a pooler in transaction mode, where a session is nobody's."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from helix_temporal.errors import HelixError
from helix_temporal.models.stored_messages import EMPTY, Head
from helix_temporal.stores.postgres import PostgresBackend, run_in_transaction
from helix_temporal.stores.postgres.database import PostgresExecutor
from helix_temporal.stores.protocols.threads import OpenThread, ReadPage
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.testing.builders import a_step
from tests.integration.postgres._pooler import Pooler, pooled


@pytest.fixture
async def pooler(postgres_dsn: str) -> AsyncIterator[Pooler]:
    """Three server connections for all clients, in turn."""
    async with pooled(postgres_dsn) as pooler:
        yield pooler


@pytest.fixture
async def backend(pooler: Pooler, table_prefix: str) -> AsyncIterator[PostgresBackend]:
    """Migrated through the pooler, as everything else goes."""
    backend = PostgresBackend(
        pooler.dsn, table_prefix=table_prefix, statement_cache_size=0, max_connections=2, timeout=30
    )
    await backend.migrations.run()
    yield backend
    await backend.close()


async def test_nothing_relies_on_the_state_of_a_session(backend: PostgresBackend) -> None:
    """Each transaction meets another server connection, and no conversation notices."""
    threads = HotThreads(backend.threads)

    async def talk(thread_id: str) -> list[str]:
        head = (await threads.open(OpenThread(thread_id, 10, "owner"))).header.head
        for _ in range(4):
            head = (await threads.append(replace(a_step(thread_id, head, epoch=10), commits=True))).head
        await backend.payloads.put_payload(thread_id, "k", b"bytes", 60)
        page = await threads.read(ReadPage(thread_id))
        return [message.id for message in page.messages]

    told = await asyncio.gather(*(talk(f"thread-{number}") for number in range(6)))
    assert [len(set(ids)) for ids in told] == [8] * 6
    assert await backend.payloads.get_payload("thread-0", "k") == b"bytes"


async def test_a_transaction_stays_on_one_connection(backend: PostgresBackend) -> None:
    """What one of its statements did, the next one sees."""
    name = f'"{backend.table_prefix}thread_payloads"'

    async def work(on: PostgresExecutor) -> int:
        await on.execute(f"INSERT INTO {name} VALUES ($1, 'k', '', 0)", "t")
        found: int = await on.fetchval(f"SELECT count(*) FROM {name}")
        return found

    assert await asyncio.gather(*(run_in_transaction(backend.database, work) for _ in range(1))) == [1]


async def test_an_append_is_one_round_trip(pooler: Pooler, backend: PostgresBackend) -> None:
    """The model's answer waits for it."""
    threads = HotThreads(backend.threads)
    await threads.open(OpenThread("t", 10, "owner"))
    before = pooler.transactions
    await threads.append(a_step("t", EMPTY, epoch=10))
    assert pooler.transactions - before == 1


async def test_an_append_that_is_refused_looks_once_more(pooler: Pooler, backend: PostgresBackend) -> None:
    """To say why."""
    threads = HotThreads(backend.threads)
    await threads.open(OpenThread("t", 10, "owner"))
    before = pooler.transactions
    with pytest.raises(HelixError):
        await threads.append(a_step("t", Head(position=3, last_id="x"), epoch=10))
    assert pooler.transactions - before == 2
