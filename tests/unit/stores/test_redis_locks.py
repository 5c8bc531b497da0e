"""Locks and usage on Redis when the server or a writer fails in the middle."""

from collections.abc import AsyncIterator

import pytest

from helix_temporal.devstack import Valkey
from helix_temporal.errors import InvalidIdError, StoreCorruptError, StoreUnavailableError
from helix_temporal.models.usage import UsageQuery
from helix_temporal.stores.protocols.hot import scan_threads
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.testing.contracts._usage_base import some_tokens
from tests.unit.stores._redis import backend_on


@pytest.fixture
async def backend(redis_url: str, redis_prefix: str) -> AsyncIterator[RedisBackend]:
    """An empty prefix of a real server."""
    async with backend_on(redis_url, redis_prefix) as made:
        yield made


@pytest.fixture
async def own(own_valkey: Valkey) -> AsyncIterator[RedisBackend]:
    """A server of one's own."""
    async with backend_on(own_valkey.url) as made:
        yield made


async def test_tokens_grow_over_a_crash_of_the_server(own: RedisBackend, own_valkey: Valkey) -> None:
    """With an append-only file nothing of a lease is lost, not even that it is held."""
    before = await own.locks.acquire("k", owner="me", claim="op")
    own_valkey.restart(kill=True)
    with pytest.raises(StoreUnavailableError):
        await own.locks.is_locked("k")
    assert await own.locks.acquire("k") is None
    after = await own.locks.acquire("k", owner="me")
    assert before is not None
    assert after is not None
    assert after.fencing_token > before.fencing_token


async def test_tokens_grow_over_the_loss_of_all_data(backend: RedisBackend) -> None:
    """They begin at the microsecond of the server's clock, which went on."""
    before = await backend.locks.acquire("k")
    await backend._connection.send_command("UNLINK", f"{backend._connection.key_of('k')}:lock")
    after = await backend.locks.acquire("k")
    assert before is not None
    assert after is not None
    assert after.fencing_token > before.fencing_token


async def test_a_key_whose_place_is_taken_by_another_is_refused(backend: RedisBackend) -> None:
    """Long keys are hashed; two locks must never become one."""
    connection = backend._connection
    await backend.locks.acquire("other")
    await connection.send_command(
        "RENAME", f"{connection.key_of('other')}:lock", f"{connection.key_of('k')}:lock"
    )
    with pytest.raises(InvalidIdError, match="same hashed form"):
        await backend.locks.acquire("k")


async def test_a_lock_has_no_time_to_live(backend: RedisBackend) -> None:
    """With its key the last token would go, and a clock that was set back could repeat it."""
    await backend.locks.acquire("k", ttl_ms=1)
    assert await backend._connection.send_command("PTTL", f"{backend._connection.key_of('k')}:lock") == -1


async def test_locks_and_usage_are_no_threads(backend: RedisBackend) -> None:
    """The maintenance worker sweeps what it finds under the prefix."""
    await backend.locks.acquire("k")
    await backend.usage.record_entry(some_tokens("k"))
    assert [each.thread_id async for each in scan_threads(backend.threads)] == []


async def test_an_entry_whose_writer_died_before_the_index_is_indexed_by_the_repeat(
    backend: RedisBackend,
) -> None:
    """It was never acknowledged; the next attempt completes it."""
    entry = some_tokens("s", agent_type="writer")
    await backend.usage.record_entry(entry)
    await backend._connection.send_command("UNLINK", backend.usage._sessions)
    await backend._connection.send_command("UNLINK", backend.usage._agent_index_key("writer"))
    assert (await backend.usage.query_usage(UsageQuery())).total == 0
    assert not await backend.usage.record_entry(entry)
    assert (await backend.usage.query_usage(UsageQuery())).total == 1
    assert (await backend.usage.query_usage(UsageQuery(agent_type="writer"))).total == 1


async def test_a_session_that_is_indexed_and_empty_counts_nothing(backend: RedisBackend) -> None:
    """Its deletion died half way."""
    await backend.usage.record_entry(some_tokens("s"))
    await backend._connection.send_command("UNLINK", backend.usage._entries_key("s"))
    page = await backend.usage.query_usage(UsageQuery())
    assert (page.items, page.total) == ((), 0)


async def test_a_damaged_entry_is_reported_and_can_be_deleted(backend: RedisBackend) -> None:
    """A sum without it would be too low; and nobody must be stuck with it."""
    await backend.usage.record_entry(some_tokens("s"))
    await backend._connection.send_command(
        "HSET", backend.usage._entries_key("s"), "bad", b'{"kind": "tokens"'
    )
    with pytest.raises(StoreCorruptError, match="usage of session 's'"):
        await backend.usage.get_rollup("s")
    assert await backend.usage.delete("s")
    assert not await backend.usage.exists("s")
