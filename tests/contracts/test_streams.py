"""Every stream store keeps the same promises."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helix_temporal.models.streams import StreamLimits, TextChunk
from helix_temporal.stores.memory.streams import MemoryStreams
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.postgres.streams import PostgresStreams
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.stores.redis.streams import RedisStreams
from helix_temporal.stores.sqlite import Database, SqliteStreams
from helix_temporal.testing.contracts._streams_base import MakeStreams
from helix_temporal.testing.contracts.streams import StreamContract


class TestMemoryStreams(StreamContract):
    @pytest.fixture
    async def make(self) -> AsyncIterator[MakeStreams]:
        """Memory is of one process: the same limits have the same store."""
        stores: dict[StreamLimits, MemoryStreams] = {}
        yield lambda limits: stores.setdefault(limits, MemoryStreams(limits))
        for store in stores.values():
            await store.close()

    async def test_a_test_looks_in_without_waiting(self) -> None:
        """Tests of applications ask what was shown, and begin anew."""
        streams = MemoryStreams()
        async with await streams.create_writer("b", agent_id="run") as writer:
            await writer.write(TextChunk(delta="Hi"))
        await (await streams.create_writer("a", agent_id="run")).close()
        await streams.pause_stream("a")
        assert streams.get_all_stream_ids() == ["a", "b"]
        assert (streams.get_status_sync("a"), streams.get_status_sync("b")) == ("paused", "active")
        assert streams.get_status_sync("nowhere") is None
        assert [each.type for each in streams.get_chunks_sync("b")] == ["text_delta"]
        streams.clear()
        assert (streams.get_all_stream_ids(), streams.get_chunks_sync("b")) == ([], [])
        await streams.close()


class TestSqliteStreams(StreamContract):
    @pytest.fixture
    async def make(self, data_directory: Path) -> AsyncIterator[MakeStreams]:
        """A file that is not there yet, opened anew by each store."""
        stores: list[SqliteStreams] = []

        def make(limits: StreamLimits) -> SqliteStreams:
            stores.append(SqliteStreams(Database(data_directory / "helix.db"), limits))
            return stores[-1]

        yield make
        for store in stores:
            await store.close()


class TestPostgresStreams(StreamContract):
    @pytest.fixture
    async def make(
        self, postgres: PostgresBackend, another_postgres: PostgresBackend
    ) -> AsyncIterator[MakeStreams]:
        """A real server; every other store has other connections."""
        databases = (postgres.database, another_postgres.database)
        stores: list[PostgresStreams] = []

        def make(limits: StreamLimits) -> PostgresStreams:
            database = databases[len(stores) % 2]
            stores.append(PostgresStreams(database, table_prefix=postgres.table_prefix, limits=limits))
            return stores[-1]

        yield make
        for store in stores:
            await store.close()


async def on_redis(url: str, prefix: str, *, cluster: bool) -> AsyncIterator[MakeStreams]:
    """Stores with connections of their own."""
    backends: list[RedisBackend] = []

    def make(limits: StreamLimits) -> RedisStreams:
        made = RedisBackend(url, prefix=prefix, cluster=cluster, timeout=60, stream_limits=limits)
        backends.append(made)
        return made.streams

    yield make
    for backend in backends:
        await backend.close()


class TestRedisStreams(StreamContract):
    @pytest.fixture
    async def make(self, redis_url: str, redis_prefix: str) -> AsyncIterator[MakeStreams]:
        """One server."""
        async for make in on_redis(redis_url, redis_prefix, cluster=False):
            yield make


class TestRedisClusterStreams(StreamContract):
    @pytest.fixture
    async def make(self, redis_cluster: str, redis_prefix: str) -> AsyncIterator[MakeStreams]:
        """Three primaries."""
        async for make in on_redis(redis_cluster, redis_prefix, cluster=True):
            yield make
