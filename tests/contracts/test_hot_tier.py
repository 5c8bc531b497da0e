"""Every hot tier keeps the same promises."""

from collections.abc import AsyncIterator

import pytest

from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.postgres import PostgresBackend, PostgresThreads
from helix_temporal.stores.protocols.hot import HotTier
from helix_temporal.stores.redis import RedisBackend, RedisThreads
from helix_temporal.stores.sqlite import SqliteBackend, SqliteThreads
from helix_temporal.testing.contracts.hot_tier import HotTierContract, TimeToLive
from helix_temporal.testing.faulty_hot import FaultyHot
from tests import _postgres
from tests.contracts._alternating import alternating


class TestMemoryThreads(HotTierContract):
    @pytest.fixture
    async def store(self) -> MemoryThreads:
        """An empty dict."""
        return MemoryThreads()

    @pytest.fixture
    async def time_to_live(self, store: MemoryThreads) -> TimeToLive:
        """Asks the store itself."""

        async def ask(thread_id: str) -> float | None:
            return store.expires_in(thread_id)

        return ask


class TestFaultyHotWithoutFaults(HotTierContract):
    @pytest.fixture
    async def store(self) -> FaultyHot:
        """Nothing fails, and other tasks run around each call."""
        return FaultyHot(MemoryThreads())

    @pytest.fixture
    async def time_to_live(self, store: HotTier) -> TimeToLive:
        """Asks the store inside."""

        async def ask(thread_id: str) -> float | None:
            assert isinstance(store, FaultyHot)
            assert isinstance(store.inner, MemoryThreads)
            return store.inner.expires_in(thread_id)

        return ask


class SqliteContract(HotTierContract):
    @pytest.fixture
    async def time_to_live(self, sqlite: SqliteBackend) -> TimeToLive:
        """Asks the file."""
        return sqlite.threads.expires_in


class TestSqliteThreads(SqliteContract):
    @pytest.fixture
    async def store(self, sqlite: SqliteBackend) -> SqliteThreads:
        """A file that is not there yet."""
        return sqlite.threads


class TestSqliteThreadsOfTwoProcesses(SqliteContract):
    @pytest.fixture
    async def store(self, sqlite: SqliteBackend, another_sqlite: SqliteBackend) -> HotTier:
        """Every call goes to the other one than the call before."""
        return alternating(sqlite.threads, another_sqlite.threads)


class RedisContract(HotTierContract):
    @pytest.fixture
    async def store(self, backend: RedisBackend) -> RedisThreads:
        """An empty prefix of a real server."""
        return backend.threads

    @pytest.fixture
    async def time_to_live(self, backend: RedisBackend) -> TimeToLive:
        """Asks the server."""

        async def ask(thread_id: str) -> float | None:
            connection = backend.threads._connection
            milliseconds = await connection.send_command("PTTL", connection.key_of(thread_id))
            return milliseconds / 1000 if milliseconds >= 0 else None

        return ask


class TestRedisThreads(RedisContract):
    @pytest.fixture
    async def backend(self, redis_url: str, redis_prefix: str) -> AsyncIterator[RedisBackend]:
        """One server."""
        backend = RedisBackend(redis_url, prefix=redis_prefix, timeout=60)
        yield backend
        await backend.close()


class TestRedisClusterThreads(RedisContract):
    @pytest.fixture
    async def backend(self, cluster: RedisBackend) -> RedisBackend:
        """A cluster of three primaries."""
        return cluster


class PostgresContract(HotTierContract):
    @pytest.fixture
    async def store(self, backend: PostgresBackend) -> PostgresThreads:
        """Empty tables of a real server."""
        return backend.threads

    @pytest.fixture
    async def time_to_live(self, backend: PostgresBackend) -> TimeToLive:
        """Asks the server."""

        async def ask(thread_id: str) -> float | None:
            left: float | None = await backend.database.fetchval(
                f"""SELECT (expires_at / 1000.0 - extract(epoch FROM clock_timestamp()))::float8
                FROM "{backend.table_prefix}threads" WHERE thread_id = $1""",
                thread_id,
            )
            return left

        return ask


class TestPostgresThreads(PostgresContract):
    @pytest.fixture
    async def backend(self, postgres: PostgresBackend) -> PostgresBackend:
        """One server."""
        return postgres


@pytest.fixture(scope="class")
async def connected_through_a_pooler(postgres_dsn: str) -> AsyncIterator[PostgresBackend]:
    """No statement is prepared by name; and another prefix beside the first."""
    prefix = _postgres.own_prefix("Mixed_Case_Of_Length_")
    async with _postgres.emptied(postgres_dsn, prefix, statement_cache_size=0) as backend:
        yield backend


class TestPostgresThreadsThroughAPooler(PostgresContract):
    @pytest.fixture
    async def backend(self, connected_through_a_pooler: PostgresBackend) -> PostgresBackend:
        """As a pooler in transaction mode asks for."""
        await _postgres.empty(connected_through_a_pooler)
        return connected_through_a_pooler
