"""Connections to whichever server is the primary now, as Redis Sentinel says."""

import asyncio
from typing import Any, Final

from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff

from helix_temporal._setting_rules import SentinelAddress

_SENTINEL_SECONDS: Final = 1.0
"""For one sentinel; then the next one is asked, within the deadline of the operation."""

# The driver has no types for it.
_Pool: Final[Any] = SentinelConnectionPool


class _Sentinels(Sentinel):
    """Sentinels that are asked by one task at a time.

    The driver moves the one that answered to the front of its list while others walk through it: of several
    tasks some put one sentinel there twice and lose another, unclosed, until too few are left to be asked.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)  # type: ignore[no-untyped-call]
        self._asking = asyncio.Lock()

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        async with self._asking:
            found: tuple[str, int] = await super().discover_master(service_name)
            return found


def sentinel_pool(address: SentinelAddress, **options: Any) -> SentinelConnectionPool:
    """A pool that asks the sentinels for the primary whenever it connects.

    Args:
        address: What a URL says of sentinels, service and user.
        options: Of the connections to the primary.
    """
    sentinel = _Sentinels(
        address.hosts,
        sentinel_kwargs={
            "socket_timeout": _SENTINEL_SECONDS,
            "socket_connect_timeout": _SENTINEL_SECONDS,
            "protocol": 2,
            "retry": Retry(NoBackoff(), 0),
            "ssl": address.tls,
        },
    )
    pool: SentinelConnectionPool = _Pool(
        address.service,
        sentinel,
        ssl=address.tls,
        db=address.db,
        username=address.username,
        password=address.password,
        **options,
    )
    return pool


async def close_sentinels(pool: SentinelConnectionPool) -> None:
    """Close the connections to the sentinels; the pool's own are closed with the pool."""
    for sentinel in pool.sentinel_manager.sentinels:
        await sentinel.aclose()
