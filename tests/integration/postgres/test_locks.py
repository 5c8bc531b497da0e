"""Leases in PostgreSQL belong to no connection; usage is found by index."""

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.testing.contracts._usage_base import NOON, some_tokens
from tests import _postgres
from tests.integration.postgres._fenced import Tally, campaign
from tests.integration.postgres._pooler import pooled

PREFIX: Final = _postgres.own_prefix("leases")


@pytest.fixture
async def tables(postgres_dsn: str) -> AsyncIterator[PostgresBackend]:
    """Empty tables."""
    async with _postgres.emptied(postgres_dsn, PREFIX) as backend:
        yield backend


def judge(tally: Tally, rounds: int) -> None:
    """Every holder lost its lease, each late write was refused, and none stands."""
    assert tally.stale == []
    assert (tally.rounds, tally.lost, tally.refused) == (rounds, rounds, 2 * rounds)
    assert tally.killed >= rounds


async def test_a_holder_whose_server_process_is_terminated_writes_nothing_stale(
    tables: PostgresBackend, postgres_dsn: str
) -> None:
    """Its lease runs out, another takes over, and its own late writes are refused."""
    judge(await campaign(postgres_dsn, PREFIX, 4), 4)


@pytest.mark.campaign
@pytest.mark.timeout(900)
async def test_a_hundred_terminated_holders_write_nothing_stale(
    tables: PostgresBackend, postgres_dsn: str
) -> None:
    """The long form."""
    judge(await campaign(postgres_dsn, PREFIX, 100), 100)


async def test_a_lease_survives_the_return_of_its_connection(
    tables: PostgresBackend, postgres_dsn: str
) -> None:
    """An advisory lock would be gone, or would still be there when it should not."""
    one = PostgresBackend(postgres_dsn, table_prefix=PREFIX, max_connections=1)
    lock = await one.locks.acquire("k")
    assert lock is not None
    # The only connection serves others meanwhile, and is closed in the end.
    assert not await one.usage.exists("s")
    assert await one.locks.acquire("k") is None
    await one.close()
    assert await tables.locks.is_locked("k")
    assert await one.locks.release("k", lock.fencing_token)
    await one.close()


async def test_a_lease_works_through_a_pooler(tables: PostgresBackend, postgres_dsn: str) -> None:
    """Each statement meets another server connection."""
    async with pooled(postgres_dsn) as pooler:
        behind = PostgresBackend(
            pooler.dsn, table_prefix=PREFIX, statement_cache_size=0, max_connections=2, timeout=30
        )
        before = pooler.transactions
        lock = await behind.locks.acquire("k", ttl_ms=60_000)
        assert pooler.transactions - before == 1
        assert lock is not None
        assert [await lock.refresh(), await behind.locks.is_locked("k")] == [True, True]
        assert await tables.locks.acquire("k") is None
        assert [await lock.release(), await lock.release()] == [True, False]
        entry = some_tokens("s")
        assert [await behind.usage.record_entry(entry) for _ in range(2)] == [True, False]
        assert await behind.usage.get_entries("s") == [entry]
        await behind.close()


@pytest.mark.parametrize(
    ("name", "scope", "index"),
    [
        ("usage_page_all", [], "usage_entries_time"),
        ("usage_page_agent", ["agent-7"], "usage_entries_agent"),
        ("usage_page_session", ["session-7", None, None, None], "usage_entries_session"),
    ],
)
async def test_a_page_of_usage_is_found_by_index(
    tables: PostgresBackend, name: str, scope: list[Any], index: str
) -> None:
    """Among entries of many sessions, a page of one costs what the page costs."""
    entries = f'"{PREFIX}usage_entries"'
    await tables.database.execute(
        f"INSERT INTO {entries} SELECT n::text, 'session-' || n % 500, 'agent-' || n % 50, 'tokens', NULL, 0,"
        f" {NOON} + n, '' FROM generate_series(1, 20000) AS n"
    )
    await tables.database.execute(f"ANALYZE {entries}")
    arguments = [None, None, NOON + 100, NOON + 300, 50, 0, *scope]
    async with tables.database.transaction() as on:
        rows = await on.fetch(f"EXPLAIN {tables.usage._queries[name]}", *arguments)
    plan = "\n".join(row[0] for row in rows)
    assert index in plan
    assert "Seq Scan" not in plan
