"""Every lock manager keeps the same promises."""

import pytest

from helix_temporal.stores.memory.locks import MemoryLocks
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.postgres.locks import PostgresLocks
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.stores.redis.locks import RedisLocks
from helix_temporal.stores.sqlite import SqliteBackend, SqliteLocks
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.testing.contracts.locks import LocksContract, ServerClockContract


class TestMemoryLocks(LocksContract):
    @pytest.fixture
    async def locks(self) -> MemoryLocks:
        """An empty dict."""
        return MemoryLocks()

    @pytest.fixture
    async def another(self, locks: MemoryLocks) -> MemoryLocks:
        """Memory is of one process: there is no other."""
        return locks


class TestSqliteLocks(LocksContract):
    @pytest.fixture
    async def locks(self, sqlite: SqliteBackend) -> SqliteLocks:
        """A file that is not there yet."""
        return sqlite.locks

    @pytest.fixture
    async def another(self, another_sqlite: SqliteBackend) -> SqliteLocks:
        """The same file."""
        return another_sqlite.locks


class TestPostgresLocks(LocksContract, ServerClockContract):
    @pytest.fixture
    async def locks(self, postgres: PostgresBackend) -> PostgresLocks:
        """A real server."""
        return postgres.locks

    @pytest.fixture
    async def another(self, another_postgres: PostgresBackend) -> PostgresLocks:
        """Other connections to the same tables."""
        return another_postgres.locks

    @pytest.fixture
    async def threads(self, postgres: PostgresBackend) -> HotThreads:
        """Threads in the same database."""
        return HotThreads(postgres.threads)


class RedisContract(LocksContract, ServerClockContract):
    @pytest.fixture
    async def locks(self, redis: RedisBackend) -> RedisLocks:
        """An empty prefix of a real server."""
        return redis.locks

    @pytest.fixture
    async def another(self, another_redis: RedisBackend) -> RedisLocks:
        """Other connections to the same server."""
        return another_redis.locks

    @pytest.fixture
    async def threads(self, redis: RedisBackend) -> HotThreads:
        """Threads on the same server."""
        return HotThreads(redis.threads)


class TestRedisLocks(RedisContract):
    """On one server."""


class TestRedisClusterLocks(RedisContract):
    @pytest.fixture
    async def redis(self, cluster: RedisBackend) -> RedisBackend:
        """Three primaries."""
        return cluster

    @pytest.fixture
    async def another_redis(self, another_cluster: RedisBackend) -> RedisBackend:
        """The same three."""
        return another_cluster
