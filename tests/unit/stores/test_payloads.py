"""When payloads expire, and what is left of them: in memory, in Redis, in PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from helix_temporal.stores.memory import MemoryPayloads
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.protocols.hot import scan_threads
from helix_temporal.stores.redis import RedisBackend
from tests import _postgres


@pytest.fixture
async def redis_backend(redis_url: str, redis_prefix: str) -> AsyncIterator[RedisBackend]:
    """An empty prefix of a real server."""
    backend = RedisBackend(redis_url, prefix=redis_prefix)
    yield backend
    await backend.close()


@pytest.fixture
async def postgres_backend(postgres_dsn: str) -> AsyncIterator[PostgresBackend]:
    """Empty tables of a real server."""
    async with _postgres.emptied(postgres_dsn, _postgres.own_prefix("payloads")) as backend:
        yield backend


async def test_a_payload_in_memory_expires_by_the_clock() -> None:
    """None once it is gone."""
    now = [1_000.0]
    payloads = MemoryPayloads(clock=lambda: now[0])
    await payloads.put_payload("t", "k", b"x", 60)
    now[0] += 60
    assert await payloads.get_payload("t", "k") is None


async def test_a_payload_in_redis_has_a_time_to_live(redis_backend: RedisBackend) -> None:
    """Nothing is left behind by a run that was terminated; and no thread is seen in it."""
    await redis_backend.payloads.put_payload("t", "k", b"x", 60)
    connection = redis_backend.threads._connection
    left = await connection.send_command("PTTL", f"{connection.key_of('t')}:payloads")
    assert 0 < left <= 60_000
    assert [each.thread_id async for each in scan_threads(redis_backend.threads)] == []


async def test_payloads_in_postgres_expire_by_its_clock_and_are_removed(
    postgres_backend: PostgresBackend,
) -> None:
    """A table does not grow with runs that were terminated."""
    await postgres_backend.payloads.put_payload("t", "k", b"x", 0.001)
    await asyncio.sleep(0.005)
    assert await postgres_backend.payloads.get_payload("t", "k") is None
    await postgres_backend.payloads.put_payload("t", "other", b"y", 60)
    query = f'SELECT key FROM "{postgres_backend.table_prefix}thread_payloads"'
    assert [row["key"] for row in await postgres_backend.database.fetch(query)] == ["other"]
