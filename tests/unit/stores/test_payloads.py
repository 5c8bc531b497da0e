"""Payloads on their way, in memory, in Redis, in PostgreSQL and in SQLite."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helix_temporal.stores.memory import MemoryPayloads
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.protocols.hot import PayloadStore
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.stores.sqlite import SqliteBackend
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


@pytest.fixture
async def sqlite_backend(data_directory: Path) -> AsyncIterator[SqliteBackend]:
    """A file that is not there yet."""
    backend = SqliteBackend(data_directory / "helix.db")
    yield backend
    await backend.close()


@pytest.fixture(params=["memory", "redis", "sqlite", "postgres"])
def payloads(
    request: pytest.FixtureRequest,
    redis_backend: RedisBackend,
    postgres_backend: PostgresBackend,
    sqlite_backend: SqliteBackend,
) -> PayloadStore:
    """All stores."""
    stores: dict[str, PayloadStore] = {
        "memory": MemoryPayloads(),
        "redis": redis_backend.payloads,
        "sqlite": sqlite_backend.payloads,
        "postgres": postgres_backend.payloads,
    }
    return stores[request.param]


async def test_a_payload_comes_back_as_it_was(payloads: PayloadStore) -> None:
    """Tool results may be any bytes."""
    await payloads.put_payload("t", "k", bytes(range(256)), 60)
    assert await payloads.get_payload("t", "k") == bytes(range(256))


async def test_the_same_key_overwrites(payloads: PayloadStore) -> None:
    """A tool's second attempt replaces what the first one left."""
    await payloads.put_payload("t", "k", b"one", 60)
    await payloads.put_payload("t", "k", b"", 60)
    assert await payloads.get_payload("t", "k") == b""


async def test_threads_and_keys_do_not_mix(payloads: PayloadStore) -> None:
    """Separators inside ids separate nothing."""
    await payloads.put_payload("a:payload:b", "c", b"one", 60)
    await payloads.put_payload("a", "b:payload:c", b"two", 60)
    await payloads.put_payload("a", "x" * 256, b"three", 60)
    await payloads.put_payload("a", "x" * 255 + "y", b"four", 60)
    assert await payloads.get_payload("a:payload:b", "c") == b"one"
    assert await payloads.get_payload("a", "b:payload:c") == b"two"
    assert await payloads.get_payload("a", "x" * 256) == b"three"
    assert await payloads.get_payload("a", "b") is None


async def test_a_deleted_payload_is_gone(payloads: PayloadStore) -> None:
    """Deleting twice is deleting once."""
    await payloads.put_payload("t", "k", b"x", 60)
    await payloads.delete_payload("t", "k")
    await payloads.delete_payload("t", "k")
    assert await payloads.get_payload("t", "k") is None


async def test_a_deleted_thread_takes_its_payloads_along(payloads: PayloadStore) -> None:
    """Whoever has a conversation deleted has all of it deleted, and no other."""
    for thread_id in ("t", "other"):
        for key in ("a", "x" * 256):
            await payloads.put_payload(thread_id, key, b"x", 60)
    await payloads.delete_payloads("t")
    await payloads.delete_payloads("t")
    assert [await payloads.get_payload("t", key) for key in ("a", "x" * 256)] == [None, None]
    assert [await payloads.get_payload("other", key) for key in ("a", "x" * 256)] == [b"x", b"x"]


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
    assert [thread_id async for thread_id in redis_backend.threads.scan()] == []


async def test_payloads_in_postgres_expire_by_its_clock_and_are_removed(
    postgres_backend: PostgresBackend,
) -> None:
    """A table does not grow with runs that were terminated."""
    await postgres_backend.payloads.put_payload("t", "k", b"x", 0.001)
    await asyncio.sleep(0.005)
    assert await postgres_backend.payloads.get_payload("t", "k") is None
    await postgres_backend.payloads.put_payload("t", "other", b"y", 60)
    query = f'SELECT key FROM "{postgres_backend.table_prefix}thread_payloads"'
    assert [row["key"] for row in await postgres_backend.adapter.fetch(query)] == ["other"]
