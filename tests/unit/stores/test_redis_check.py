"""The start-up check refuses servers that would lose data, and settings that don't fit the server."""

import asyncio

import pytest

from helix_temporal.devstack import Valkey, start_valkey
from helix_temporal.errors import InvalidConfigError, UnsafeRedisPolicyError, UnsupportedServerError
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.stores.redis._check import refuse_unsafe_policy
from tests.unit.stores._redis import backend_on


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random"])
async def test_a_policy_that_may_evict_threads_is_refused(policy: str) -> None:
    """Unarchived messages would vanish under memory pressure."""
    with start_valkey(arguments=("--maxmemory-policy", policy)) as server:
        async with backend_on(server.url) as backend:
            with pytest.raises(UnsafeRedisPolicyError, match=policy):
                await backend.check()


@pytest.mark.parametrize("policy", ["noeviction", "volatile-lru", "volatile-ttl"])
def test_a_policy_that_spares_threads_is_accepted(policy: str) -> None:
    """Only keys with a time to live go: threads kept warm, payloads."""
    refuse_unsafe_policy("here", policy)


async def test_one_unsafe_node_of_a_cluster_is_enough(redis_cluster: str, redis_prefix: str) -> None:
    """Every primary is asked."""
    backend = RedisBackend(redis_cluster, prefix=redis_prefix, cluster=True)
    connection = backend.threads._connection
    *_, last = await connection.primaries()
    await connection.command("CONFIG SET", "maxmemory-policy", "allkeys-lru", at=last)
    try:
        with pytest.raises(UnsafeRedisPolicyError):
            await backend.check()
    finally:
        await connection.command("CONFIG SET", "maxmemory-policy", "noeviction", at=last)
    await backend.close()


async def test_a_replica_is_refused(own_valkey: Valkey) -> None:
    """It takes no writes."""
    with start_valkey(arguments=("--replicaof", "127.0.0.1", str(own_valkey.port))) as replica:
        async with backend_on(replica.url) as backend:
            with pytest.raises(UnsupportedServerError, match="replica"):
                await backend.check()


async def test_a_cluster_that_was_not_announced_is_refused(redis_cluster: str) -> None:
    """Half of the threads would live elsewhere."""
    async with backend_on(redis_cluster) as backend:
        with pytest.raises(InvalidConfigError, match="cluster"):
            await backend.check()
        calls = (backend.threads.header(f"t{n}") for n in range(20))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {type(None), InvalidConfigError}


async def test_a_cluster_that_is_none_is_refused(redis_url: str) -> None:
    """The setting is wrong: no retry will mend it."""
    backend = RedisBackend(redis_url, cluster=True)
    with pytest.raises(InvalidConfigError, match="cluster"):
        await backend.check()
    await backend.close()
