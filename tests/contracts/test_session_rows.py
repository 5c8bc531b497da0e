"""Every store of sessions keeps the same promises."""

from collections.abc import AsyncIterator

import pytest

from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.memory.sessions import MemorySessions
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.protocols.hot import HotTier
from helix_temporal.stores.protocols.session_rows import SessionRows
from helix_temporal.stores.redis import RedisBackend, RedisSessions, RedisThreads
from helix_temporal.stores.sqlite import SqliteBackend
from helix_temporal.testing.contracts.session_rows import SessionRowsWithThreadsContract
from tests.contracts._alternating import alternating


class TestMemorySessions(SessionRowsWithThreadsContract):
    @pytest.fixture
    async def threads(self) -> MemoryThreads:
        """An empty dict."""
        return MemoryThreads()

    @pytest.fixture
    async def store(self, threads: MemoryThreads) -> MemorySessions:
        """An empty dict beside it."""
        return MemorySessions(threads)


class TestSqliteSessions(SessionRowsWithThreadsContract):
    @pytest.fixture
    async def threads(self, sqlite: SqliteBackend) -> HotTier:
        """The threads of a file that is not there yet."""
        return sqlite.threads

    @pytest.fixture
    async def store(self, sqlite: SqliteBackend) -> SessionRows:
        """Its sessions."""
        return sqlite.sessions


class TestSqliteSessionsOfTwoProcesses(SessionRowsWithThreadsContract):
    @pytest.fixture
    async def threads(self, sqlite: SqliteBackend) -> HotTier:
        """The threads of one."""
        return sqlite.threads

    @pytest.fixture
    async def store(self, sqlite: SqliteBackend, another_sqlite: SqliteBackend) -> SessionRows:
        """Every call goes to the other one than the call before."""
        return alternating(sqlite.sessions, another_sqlite.sessions)


class RedisContract(SessionRowsWithThreadsContract):
    @pytest.fixture
    async def store(self, backend: RedisBackend) -> RedisSessions:
        """An empty prefix of a real server."""
        return backend.sessions

    @pytest.fixture
    async def threads(self, backend: RedisBackend) -> RedisThreads:
        """The threads beside it."""
        return backend.threads


class TestRedisSessions(RedisContract):
    @pytest.fixture
    async def backend(self, redis_url: str, redis_prefix: str) -> AsyncIterator[RedisBackend]:
        """One server."""
        backend = RedisBackend(redis_url, prefix=redis_prefix, timeout=60)
        yield backend
        await backend.close()


class TestRedisClusterSessions(RedisContract):
    @pytest.fixture
    async def backend(self, cluster: RedisBackend) -> RedisBackend:
        """A cluster of three primaries: sessions and their index lie on different ones."""
        return cluster


class TestPostgresSessions(SessionRowsWithThreadsContract):
    @pytest.fixture
    async def store(self, postgres: PostgresBackend) -> SessionRows:
        """Empty tables of a real server."""
        return postgres.sessions

    @pytest.fixture
    async def threads(self, postgres: PostgresBackend) -> HotTier:
        """The threads beside it."""
        return postgres.threads
