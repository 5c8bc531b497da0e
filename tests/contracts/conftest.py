"""Connections that the tests of a class share: making them takes longer than most of the tests."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from helix_temporal.blobs.s3 import S3Blobs
from helix_temporal.devstack import S3Endpoint
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.stores.sqlite import SqliteBackend
from tests import _postgres, _redis
from tests._sessions import Place, postgres_place
from tests.unit.stores._redis import backend_on


@pytest.fixture(scope="class")
async def connected_postgres(postgres_dsn: str) -> AsyncIterator[PostgresBackend]:
    """Tables of this process's own."""
    async with _postgres.emptied(postgres_dsn, _postgres.own_prefix()) as backend:
        yield backend


@pytest.fixture
async def postgres(connected_postgres: PostgresBackend) -> PostgresBackend:
    """Empty tables of a real server."""
    await _postgres.empty(connected_postgres)
    return connected_postgres


@pytest.fixture(scope="class")
async def connected_again(
    postgres_dsn: str, connected_postgres: PostgresBackend
) -> AsyncIterator[PostgresBackend]:
    """Other connections to the same tables."""
    backend = PostgresBackend(postgres_dsn, table_prefix=connected_postgres.table_prefix, timeout=60)
    yield backend
    await backend.close()


@pytest.fixture
async def another_postgres(postgres: PostgresBackend, connected_again: PostgresBackend) -> PostgresBackend:
    """Other connections to the tables that were emptied."""
    return connected_again


@pytest.fixture(scope="class")
async def connected_crowd(
    postgres_dsn: str, connected_postgres: PostgresBackend
) -> AsyncIterator[list[Place]]:
    """The same tables, opened four times more."""
    async with AsyncExitStack() as stack:
        opened = [postgres_place(postgres_dsn, connected_postgres.table_prefix) for _ in range(4)]
        yield [await stack.enter_async_context(each) for each in opened]


@pytest.fixture
async def sqlite(data_directory: Path) -> AsyncIterator[SqliteBackend]:
    """A database file that is not there yet."""
    backend = SqliteBackend(data_directory / "helix.db", timeout=60)
    yield backend
    await backend.close()


@pytest.fixture
async def another_sqlite(sqlite: SqliteBackend) -> AsyncIterator[SqliteBackend]:
    """The same file, as another process has it."""
    backend = SqliteBackend(sqlite.database.file, timeout=60)
    yield backend
    await backend.close()


@pytest.fixture
async def redis(redis_url: str, redis_prefix: str) -> AsyncIterator[RedisBackend]:
    """An empty prefix of a real server."""
    async with backend_on(redis_url, redis_prefix, timeout=60) as backend:
        yield backend


@pytest.fixture
async def another_redis(redis_url: str, redis_prefix: str) -> AsyncIterator[RedisBackend]:
    """Other connections to the same prefix."""
    async with backend_on(redis_url, redis_prefix, timeout=60) as backend:
        yield backend


@pytest.fixture(scope="class")
async def connected_cluster(redis_cluster: str) -> AsyncIterator[RedisBackend]:
    """A client that knows where each slot lies."""
    async with _redis.connected(redis_cluster, cluster=True) as backend:
        yield backend


@pytest.fixture
async def cluster(connected_cluster: RedisBackend, redis_prefix: str) -> RedisBackend:
    """An empty prefix of a cluster of three primaries."""
    return _redis.under(connected_cluster, redis_prefix)


@pytest.fixture(scope="class")
async def connected_cluster_again(redis_cluster: str) -> AsyncIterator[RedisBackend]:
    """Another such client."""
    async with _redis.connected(redis_cluster, cluster=True) as backend:
        yield backend


@pytest.fixture
async def another_cluster(connected_cluster_again: RedisBackend, redis_prefix: str) -> RedisBackend:
    """Other connections to the same prefix."""
    return _redis.under(connected_cluster_again, redis_prefix)


@pytest.fixture(scope="class")
async def bucket(s3: S3Endpoint) -> AsyncIterator[S3Blobs]:
    """A bucket of a real server, which others write to as well."""
    blobs = S3Blobs(
        s3.bucket,
        endpoint=s3.endpoint,
        region=s3.region,
        access_key=s3.access_key,
        secret_key=s3.secret_key,
        read_timeout=30,
    )
    yield blobs
    await blobs.close()
