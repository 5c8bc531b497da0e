"""Every lock manager keeps the same promises."""

from collections.abc import AsyncIterator

import pytest

from helix_temporal.stores.alone import HotThreads
from helix_temporal.stores.memory.locks import MemoryLocks
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.stores.redis.locks import RedisLocks
from helix_temporal.testing.contracts.locks import LocksContract, ServerClockContract
from tests.unit.stores._redis import backend_on


class TestMemoryLocks(LocksContract):
    @pytest.fixture
    async def locks(self) -> MemoryLocks:
        """An empty dict."""
        return MemoryLocks()

    @pytest.fixture
    async def another(self, locks: MemoryLocks) -> MemoryLocks:
        """Memory is of one process: there is no other."""
        return locks


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
