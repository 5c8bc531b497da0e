"""The bare drivers: what a program without this package would call."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

import aioboto3
from redis.asyncio import Redis

from helix_temporal.settings import Settings

PUSH: Final = "redis.call('HSET', KEYS[1], unpack(ARGV)) return 1"
"""The least that a script can do with bytes."""

READ: Final = "return redis.call('HVALS', KEYS[1])"


def redis_client(settings: Settings) -> Redis:
    """redis-py as its manual opens it."""
    assert settings.redis_url is not None
    return Redis.from_url(settings.redis_url)


@contextlib.asynccontextmanager
async def s3_client(settings: Settings) -> AsyncIterator[Any]:
    """aioboto3 as its manual opens it, once."""
    access, secret = settings.s3_access_key, settings.s3_secret_key
    session = aioboto3.Session(
        aws_access_key_id=access.get_secret_value() if access else None,
        aws_secret_access_key=secret.get_secret_value() if secret else None,
        region_name=settings.s3_region,
    )
    client: Any = session.client("s3", endpoint_url=settings.s3_endpoint)
    async with client as opened:
        yield opened
