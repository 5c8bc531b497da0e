"""Every thread store keeps the same promises: alone or over an archive, in memory or on real servers."""

from pathlib import Path

import pytest

from helix_temporal.blobs.directory import DirectoryBlobs
from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.blobs.s3 import S3Blobs
from helix_temporal.coldtier import TieredThreads
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.stores.sqlite import SqliteBackend
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.testing.contracts.threads import ArchivingThreadsContract, HotOnlyThreadsContract
from helix_temporal.testing.faults import FaultyBlobs


class TestMemoryAlone(HotOnlyThreadsContract):
    @pytest.fixture
    async def threads(self) -> HotThreads:
        """Nothing but a dict."""
        return HotThreads(MemoryThreads())


class TestSqliteAlone(HotOnlyThreadsContract):
    @pytest.fixture
    async def threads(self, sqlite: SqliteBackend) -> HotThreads:
        """A file."""
        return HotThreads(sqlite.threads)


class TestRedisAlone(HotOnlyThreadsContract):
    @pytest.fixture
    async def threads(self, redis: RedisBackend) -> HotThreads:
        """A real server without an archive."""
        return HotThreads(redis.threads)


class TestRedisClusterAlone(HotOnlyThreadsContract):
    @pytest.fixture
    async def threads(self, cluster: RedisBackend) -> HotThreads:
        """Three primaries without an archive."""
        return HotThreads(cluster.threads)


class TestPostgresAlone(HotOnlyThreadsContract):
    @pytest.fixture
    async def threads(self, postgres: PostgresBackend) -> HotThreads:
        """A database without an archive."""
        return HotThreads(postgres.threads)


class TestMemoryOverMemory(ArchivingThreadsContract):
    @pytest.fixture
    async def blobs(self) -> FaultyBlobs:
        """Another dict."""
        return FaultyBlobs(MemoryBlobs())

    @pytest.fixture
    async def threads(self, blobs: FaultyBlobs) -> TieredThreads:
        """Two tiers in this process."""
        return TieredThreads(MemoryThreads(), blobs)


class TestSqliteOverDirectory(ArchivingThreadsContract):
    @pytest.fixture
    async def blobs(self, tmp_path: Path) -> FaultyBlobs:
        """Files beside the database."""
        (tmp_path / "cold").mkdir()
        return FaultyBlobs(DirectoryBlobs(tmp_path / "cold"))

    @pytest.fixture
    async def threads(self, sqlite: SqliteBackend, blobs: FaultyBlobs) -> TieredThreads:
        """Two tiers without any server."""
        return TieredThreads(sqlite.threads, blobs)


class TestRedisOverS3(ArchivingThreadsContract):
    @pytest.fixture
    async def blobs(self, bucket: S3Blobs) -> FaultyBlobs:
        """A bucket of a real server."""
        return FaultyBlobs(bucket)

    @pytest.fixture
    async def threads(self, redis: RedisBackend, blobs: FaultyBlobs, s3_prefix: str) -> TieredThreads:
        """The tiers of a real deployment."""
        return TieredThreads(redis.threads, blobs, prefix=s3_prefix, step_seconds=30)


class TestRedisOverDirectory(ArchivingThreadsContract):
    @pytest.fixture
    async def blobs(self, tmp_path: Path) -> FaultyBlobs:
        """Files."""
        return FaultyBlobs(DirectoryBlobs(tmp_path))

    @pytest.fixture
    async def threads(self, redis: RedisBackend, blobs: FaultyBlobs) -> TieredThreads:
        """A real Redis, and an archive without a server."""
        return TieredThreads(redis.threads, blobs)


class TestPostgresOverDirectory(ArchivingThreadsContract):
    @pytest.fixture
    async def blobs(self, tmp_path: Path) -> FaultyBlobs:
        """Files."""
        return FaultyBlobs(DirectoryBlobs(tmp_path))

    @pytest.fixture
    async def threads(self, postgres: PostgresBackend, blobs: FaultyBlobs) -> TieredThreads:
        """A database for what is being talked about, and an archive for the rest."""
        return TieredThreads(postgres.threads, blobs)
