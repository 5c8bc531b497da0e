"""Every store of payloads keeps the same promises."""

import pytest

from helix_temporal.stores.memory import MemoryPayloads
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.protocols.hot import PayloadStore
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.stores.sqlite import SqliteBackend
from helix_temporal.testing.contracts.payloads import PayloadContract


class TestMemoryPayloads(PayloadContract):
    @pytest.fixture
    async def payloads(self) -> PayloadStore:
        """An empty dict."""
        return MemoryPayloads()


class TestRedisPayloads(PayloadContract):
    @pytest.fixture
    async def payloads(self, redis: RedisBackend) -> PayloadStore:
        """An empty prefix."""
        return redis.payloads


class TestSqlitePayloads(PayloadContract):
    @pytest.fixture
    async def payloads(self, sqlite: SqliteBackend) -> PayloadStore:
        """A file that is not there yet."""
        return sqlite.payloads


class TestPostgresPayloads(PayloadContract):
    @pytest.fixture
    async def payloads(self, postgres: PostgresBackend) -> PayloadStore:
        """Empty tables."""
        return postgres.payloads
