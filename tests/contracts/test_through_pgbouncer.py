"""PostgreSQL behind PgBouncer in transaction mode, with default settings: the stores' whole contracts."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from helix_temporal.errors import InvalidConfigError
from helix_temporal.models.streams import StreamLimits
from helix_temporal.stores.postgres import AsyncpgDatabase, PostgresBackend
from helix_temporal.stores.postgres.locks import PostgresLocks
from helix_temporal.stores.postgres.streams import PostgresStreams
from helix_temporal.stores.postgres.usage import PostgresUsage
from helix_temporal.stores.protocols.hot import HotTier, PayloadStore
from helix_temporal.stores.protocols.session_rows import SessionRows
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.testing.contracts._streams_base import MakeStreams
from helix_temporal.testing.contracts.locks import LocksContract, ServerClockContract
from helix_temporal.testing.contracts.payloads import PayloadContract
from helix_temporal.testing.contracts.session_rows import SessionRowsWithThreadsContract
from helix_temporal.testing.contracts.streams import StreamContract
from helix_temporal.testing.contracts.usage import UsageContract
from tests import _postgres
from tests._pgbouncer import pgbouncer
from tests.contracts.test_hot_tier import PostgresContract


@pytest.fixture(scope="session")
def pooled_dsn(postgres_dsn: str) -> Iterator[str]:
    """Four server connections for all clients, each for one transaction at a time."""
    with pgbouncer(postgres_dsn) as dsn:
        yield dsn


@pytest.fixture
async def pooled(pooled_dsn: str) -> AsyncIterator[PostgresBackend]:
    """Empty tables, with everything as it is by default."""
    async with _postgres.emptied(pooled_dsn, _postgres.own_prefix("pooled")) as backend:
        yield backend


@pytest.fixture
async def another_pooled(pooled: PostgresBackend, pooled_dsn: str) -> AsyncIterator[PostgresBackend]:
    """Other connections to the same tables."""
    backend = PostgresBackend(pooled_dsn, table_prefix=pooled.table_prefix, timeout=60)
    yield backend
    await backend.close()


class TestPooledThreads(PostgresContract):
    @pytest.fixture
    async def backend(self, pooled: PostgresBackend) -> PostgresBackend:
        """Threads."""
        return pooled


class TestPooledLocks(LocksContract, ServerClockContract):
    @pytest.fixture
    async def locks(self, pooled: PostgresBackend) -> PostgresLocks:
        """Leases."""
        return pooled.locks

    @pytest.fixture
    async def another(self, another_pooled: PostgresBackend) -> PostgresLocks:
        """Of another client."""
        return another_pooled.locks

    @pytest.fixture
    async def threads(self, pooled: PostgresBackend) -> HotThreads:
        """In the same database."""
        return HotThreads(pooled.threads)


class TestPooledUsage(UsageContract):
    @pytest.fixture
    async def usage(self, pooled: PostgresBackend) -> PostgresUsage:
        """Entries."""
        return pooled.usage

    @pytest.fixture
    async def another(self, another_pooled: PostgresBackend) -> PostgresUsage:
        """Of another client."""
        return another_pooled.usage


class TestPooledPayloads(PayloadContract):
    @pytest.fixture
    async def payloads(self, pooled: PostgresBackend) -> PayloadStore:
        """Rows."""
        return pooled.payloads


class TestPooledStreams(StreamContract):
    @pytest.fixture
    async def make(
        self, pooled: PostgresBackend, another_pooled: PostgresBackend
    ) -> AsyncIterator[MakeStreams]:
        """Every other store is another client's."""
        databases, stores = (pooled.database, another_pooled.database), list[PostgresStreams]()

        def make(limits: StreamLimits) -> PostgresStreams:
            database = databases[len(stores) % 2]
            stores.append(PostgresStreams(database, table_prefix=pooled.table_prefix, limits=limits))
            return stores[-1]

        yield make
        for store in stores:
            await store.close()


class TestPooledSessions(SessionRowsWithThreadsContract):
    @pytest.fixture
    async def store(self, pooled: PostgresBackend) -> SessionRows:
        """Sessions."""
        return pooled.sessions

    @pytest.fixture
    async def threads(self, pooled: PostgresBackend) -> HotTier:
        """In the same database."""
        return pooled.threads


async def test_a_pooler_is_noticed_and_a_server_is_none(pooled: PostgresBackend, postgres_dsn: str) -> None:
    """Prepared statements are worth a third of a call where they work."""
    straight = PostgresBackend(postgres_dsn, table_prefix=pooled.table_prefix)
    await straight.check()
    await pooled.check()
    sizes = [await _statements_of(each) for each in (straight, pooled)]
    await straight.close()
    assert sizes == [256, 0]


async def _statements_of(backend: PostgresBackend) -> int:
    assert isinstance(backend.database, AsyncpgDatabase)
    async with backend.database._take_connection() as connection:
        size: int = connection._stmt_cache.get_max_size()
        return size


async def test_a_pooler_that_was_not_noticed_is_told_with_the_setting(
    pooled: PostgresBackend, pooled_dsn: str
) -> None:
    """Whoever insists on prepared statements learns what to change, at the first statement that fails."""
    insisting = PostgresBackend(pooled_dsn, table_prefix=pooled.table_prefix, statement_cache_size=256)
    errors = []
    for _ in range(5):
        found = await _all_at_once(insisting)
        errors += [each for each in found if isinstance(each, Exception)]
    await insisting.close()
    assert errors
    assert all("HELIX_POSTGRES_STATEMENT_CACHE_SIZE" in str(each) for each in errors)


async def _all_at_once(backend: PostgresBackend) -> list[object]:
    calls = (backend.threads.read_header(f"t{number}") for number in range(16))
    return list(await asyncio.gather(*calls, return_exceptions=True))


async def test_a_pooler_in_statement_mode_is_refused_at_the_start(
    pooled: PostgresBackend, postgres_dsn: str
) -> None:
    """It refuses transactions: the worker started, and each call failed as if the server were away."""
    with pgbouncer(postgres_dsn, "statement") as dsn:
        backend = PostgresBackend(dsn, table_prefix=pooled.table_prefix)
        with pytest.raises(InvalidConfigError, match="pooler in statement mode"):
            await backend.check()
        await backend.close()


async def test_a_given_pool_that_loses_its_statements_is_refused_at_the_start(
    pooled: PostgresBackend, pooled_dsn: str
) -> None:
    """By default asyncpg prepares statements by name; that failed turns, now and then."""
    async with asyncpg.create_pool(pooled_dsn, min_size=0) as pool:
        with pytest.raises(InvalidConfigError, match="statement_cache_size=0"):
            await PostgresBackend(pool, table_prefix=pooled.table_prefix).check()


@pytest.mark.parametrize("mode", ["session", "transaction", "none"])
async def test_a_given_pool_that_works_is_taken(
    pooled: PostgresBackend, postgres_dsn: str, mode: str
) -> None:
    """Each connection a server's process of its own, or no statement prepared by name."""
    between = contextlib.nullcontext(postgres_dsn) if mode == "none" else pgbouncer(postgres_dsn, mode)
    cached = 0 if mode == "transaction" else 100
    with between as dsn:
        async with asyncpg.create_pool(dsn, min_size=0, statement_cache_size=cached) as pool:
            await PostgresBackend(pool, table_prefix=pooled.table_prefix).check()


async def test_a_given_pool_of_which_nothing_is_free_is_not_looked_at(
    pooled: PostgresBackend, pooled_dsn: str
) -> None:
    """One connection shows nothing, and the check waits for no second one."""
    async with asyncpg.create_pool(pooled_dsn, min_size=0, max_size=1) as pool:
        await PostgresBackend(pool, table_prefix=pooled.table_prefix).check()
