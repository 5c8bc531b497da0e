"""Every usage store keeps the same promises."""

import pytest

from helix_temporal.stores.memory.usage import MemoryUsage
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.postgres.usage import PostgresUsage
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.stores.redis.usage import RedisUsage
from helix_temporal.stores.sqlite import SqliteBackend, SqliteUsage
from helix_temporal.testing.contracts.usage import UsageContract


class TestMemoryUsage(UsageContract):
    @pytest.fixture
    async def usage(self) -> MemoryUsage:
        """An empty dict."""
        return MemoryUsage()

    @pytest.fixture
    async def another(self, usage: MemoryUsage) -> MemoryUsage:
        """Memory is of one process: there is no other."""
        return usage


class TestSqliteUsage(UsageContract):
    @pytest.fixture
    async def usage(self, sqlite: SqliteBackend) -> SqliteUsage:
        """A file that is not there yet."""
        return sqlite.usage

    @pytest.fixture
    async def another(self, another_sqlite: SqliteBackend) -> SqliteUsage:
        """The same file."""
        return another_sqlite.usage


class TestPostgresUsage(UsageContract):
    @pytest.fixture
    async def usage(self, postgres: PostgresBackend) -> PostgresUsage:
        """A real server."""
        return postgres.usage

    @pytest.fixture
    async def another(self, another_postgres: PostgresBackend) -> PostgresUsage:
        """Other connections to the same tables."""
        return another_postgres.usage


class RedisContract(UsageContract):
    @pytest.fixture
    async def usage(self, redis: RedisBackend) -> RedisUsage:
        """An empty prefix of a real server."""
        return redis.usage

    @pytest.fixture
    async def another(self, another_redis: RedisBackend) -> RedisUsage:
        """Other connections to the same server."""
        return another_redis.usage


class TestRedisUsage(RedisContract):
    """On one server."""


class TestRedisClusterUsage(RedisContract):
    @pytest.fixture
    async def redis(self, cluster: RedisBackend) -> RedisBackend:
        """Three primaries."""
        return cluster

    @pytest.fixture
    async def another_redis(self, another_cluster: RedisBackend) -> RedisBackend:
        """The same three."""
        return another_cluster
