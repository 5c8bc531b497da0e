"""The servers that fixtures give to tests are there and are shared."""

from urllib.parse import urlsplit

import asyncpg
import pytest
import redis.asyncio
from temporalio.client import Client

from helix_temporal.devstack import S3Endpoint, Valkey
from helix_temporal.devstack.servers import RequestSigner, bucket_answers
from helix_temporal.settings import Settings


async def test_redis_answers_its_driver(redis_url: str) -> None:
    """Thread stores are tested on a real server."""
    async with redis.asyncio.from_url(redis_url) as client:
        assert await client.ping()


async def test_the_cluster_serves_every_slot(redis_cluster: str) -> None:
    """Keys of any thread find their node."""
    async with redis.asyncio.RedisCluster.from_url(redis_cluster) as client:
        for number in range(50):
            await client.set(f"fixture-{number}", number)
        assert [await client.get(f"fixture-{number}") for number in (0, 49)] == [b"0", b"49"]


async def test_postgres_answers_its_driver(postgres_dsn: str) -> None:
    """Session stores are tested on a real server."""
    connection = await asyncpg.connect(postgres_dsn)
    try:
        assert await connection.fetchval("SELECT 1 + 1") == 2
    finally:
        await connection.close()


async def test_temporal_answers_its_sdk(temporal_address: str) -> None:
    """Workflows run on a real server."""
    client = await Client.connect(temporal_address)
    assert await client.service_client.check_health()


def test_the_bucket_takes_signed_requests_only(s3: S3Endpoint) -> None:
    """Blob stores are tested with credentials, as in production."""
    assert s3.access_key
    assert s3.secret_key
    signer = RequestSigner(s3.region, s3.access_key, s3.secret_key)
    assert bucket_answers(s3.endpoint, s3.bucket, signer)
    assert not bucket_answers(s3.endpoint, s3.bucket, RequestSigner(s3.region, s3.access_key, "wrong"))


def test_an_own_server_keeps_acknowledged_writes_over_a_crash(own_valkey: Valkey) -> None:
    """Chaos tests kill Redis and expect what was acknowledged."""
    own_valkey.ask("SET", "kept", "yes")
    own_valkey.restart(kill=True)
    assert own_valkey.ask("GET", "kept") == "yes"


def test_settings_of_a_test_are_its_own(settings: Settings, unique: str) -> None:
    """Tests that share a server must not see each other's threads."""
    assert (settings.redis_prefix, settings.s3_prefix, settings.task_queue) == (f"{unique}:", unique, unique)
    assert urlsplit(settings.redis_url or "").hostname == "127.0.0.1"


@pytest.mark.parametrize("name", ["redis_prefix", "s3_prefix", "table_prefix", "task_queue"])
def test_names_begin_alike_within_a_test(request: pytest.FixtureRequest, name: str, unique: str) -> None:
    """What a failing test left on a server can be found by one name."""
    assert str(request.getfixturevalue(name)).startswith(unique)
