"""Every hot tier keeps the same promises."""

from collections.abc import AsyncIterator, Iterator

import pytest

from helix_temporal.devstack.valkey import start_valkey, start_valkey_cluster
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.redis import RedisBackend, RedisThreads
from helix_temporal.testing.builders import an_id
from helix_temporal.testing.contracts.hot_tier import HotTierContract, TimeToLive


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    """A server for this module."""
    with start_valkey() as server:
        yield server.url


@pytest.fixture(scope="module")
def redis_cluster() -> Iterator[str]:
    """A node of a cluster for this module."""
    with start_valkey_cluster() as nodes:
        yield nodes[0].url


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
            milliseconds = await connection.command("PTTL", connection.key(thread_id))
            return milliseconds / 1000 if milliseconds >= 0 else None

        return ask


class TestRedisThreads(RedisContract):
    @pytest.fixture
    async def backend(self, redis_url: str) -> AsyncIterator[RedisBackend]:
        """One server."""
        backend = RedisBackend(redis_url, prefix=f"{an_id()}:", timeout=60)
        yield backend
        await backend.close()


class TestRedisClusterThreads(RedisContract):
    @pytest.fixture
    async def backend(self, redis_cluster: str) -> AsyncIterator[RedisBackend]:
        """A cluster of three primaries."""
        backend = RedisBackend(redis_cluster, prefix=f"{an_id()}:", cluster=True, timeout=60)
        yield backend
        await backend.close()
