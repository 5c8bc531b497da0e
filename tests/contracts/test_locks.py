"""Every lock manager keeps the same promises."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from helix_temporal.stores.alone import HotThreads
from helix_temporal.stores.file import FileBackend
from helix_temporal.stores.file.locks import FileLocks
from helix_temporal.stores.memory.locks import MemoryLocks
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.postgres.locks import PostgresLocks
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.stores.redis.locks import RedisLocks
from helix_temporal.testing.contracts.locks import LocksContract, ServerClockContract
from tests import _postgres
from tests.unit.stores._redis import backend_on

PREFIX: Final = _postgres.own_prefix("locks")


class TestMemoryLocks(LocksContract):
    @pytest.fixture
    async def locks(self) -> MemoryLocks:
        """An empty dict."""
        return MemoryLocks()

    @pytest.fixture
    async def another(self, locks: MemoryLocks) -> MemoryLocks:
        """Memory is of one process: there is no other."""
        return locks


class TestFileLocks(LocksContract):
    @pytest.fixture
    async def locks(self, tmp_path: Path) -> FileLocks:
        """An empty directory."""
        return FileBackend(tmp_path).locks

    @pytest.fixture
    async def another(self, locks: FileLocks, tmp_path: Path) -> FileLocks:
        """The same directory."""
        return FileBackend(tmp_path).locks


class TestPostgresLocks(LocksContract, ServerClockContract):
    @pytest.fixture
    async def postgres(self, postgres_dsn: str) -> AsyncIterator[PostgresBackend]:
        """Empty tables."""
        async with _postgres.emptied(postgres_dsn, PREFIX) as backend:
            yield backend

    @pytest.fixture
    async def locks(self, postgres: PostgresBackend) -> PostgresLocks:
        """A real server."""
        return postgres.locks

    @pytest.fixture
    async def another(self, locks: PostgresLocks, postgres_dsn: str) -> AsyncIterator[PostgresLocks]:
        """Other connections to the same tables."""
        backend = PostgresBackend(postgres_dsn, table_prefix=PREFIX, timeout=60)
        yield backend.locks
        await backend.close()

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
    async def another(self, other_redis: RedisBackend) -> RedisLocks:
        """Other connections to the same server."""
        return other_redis.locks

    @pytest.fixture
    async def threads(self, redis: RedisBackend) -> HotThreads:
        """Threads on the same server."""
        return HotThreads(redis.threads)


class TestRedisLocks(RedisContract):
    @pytest.fixture
    async def redis(self, redis_url: str, redis_prefix: str) -> AsyncIterator[RedisBackend]:
        """One server."""
        async with backend_on(redis_url, redis_prefix, timeout=60) as backend:
            yield backend

    @pytest.fixture
    async def other_redis(self, redis_url: str, redis_prefix: str) -> AsyncIterator[RedisBackend]:
        """The same server."""
        async with backend_on(redis_url, redis_prefix, timeout=60) as backend:
            yield backend


class TestRedisClusterLocks(RedisContract):
    @pytest.fixture
    async def redis(self, redis_cluster: str, redis_prefix: str) -> AsyncIterator[RedisBackend]:
        """Three primaries."""
        backend = RedisBackend(redis_cluster, prefix=redis_prefix, cluster=True, timeout=60)
        yield backend
        await backend.close()

    @pytest.fixture
    async def other_redis(self, redis_cluster: str, redis_prefix: str) -> AsyncIterator[RedisBackend]:
        """The same three."""
        backend = RedisBackend(redis_cluster, prefix=redis_prefix, cluster=True, timeout=60)
        yield backend
        await backend.close()
