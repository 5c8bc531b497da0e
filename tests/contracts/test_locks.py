"""Every lock manager keeps the same promises."""

import asyncio
from pathlib import Path

import pytest

from helix_temporal.errors import StoreCorruptError
from helix_temporal.facade.documents import FileLocks
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


class TestFileLocks(LocksContract):
    @pytest.fixture
    async def locks(self, data_directory: Path) -> FileLocks:
        """The leases of the façade's documents, in a directory that is not there yet."""
        return FileLocks(data_directory)

    @pytest.fixture
    async def another(self, locks: FileLocks, data_directory: Path) -> FileLocks:
        """The same directory."""
        return FileLocks(data_directory)

    async def test_a_damaged_lease_is_told_and_left_alone(
        self, locks: FileLocks, data_directory: Path
    ) -> None:
        """Taken anew, it might give out a token that was given out before."""
        await locks.acquire("k")
        path = locks._row_path("k")
        damaged = path.read_bytes().replace(b"fencing_token", b"fencing_tokan")
        path.write_bytes(damaged)
        with pytest.raises(StoreCorruptError, match="'k'"):
            await FileLocks(data_directory).acquire("k")
        assert await asyncio.to_thread(path.read_bytes) == damaged


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
