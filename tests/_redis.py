"""A client of a real Redis that many tests share, each under a prefix of its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from helix_temporal.stores.redis import RedisBackend

TIMEOUT = 60.0


@asynccontextmanager
async def connected(url: str, *, cluster: bool = False) -> AsyncIterator[RedisBackend]:
    """A client that has asked the server what it must know."""
    backend = RedisBackend(url, cluster=cluster, timeout=TIMEOUT)
    try:
        await backend._connection.list_primaries()
        yield backend
    finally:
        await backend.close()


def under(connected: RedisBackend, prefix: str) -> RedisBackend:
    """A backend over the client of another one, which closes it."""
    shared = connected._connection
    backend = RedisBackend(shared._url, prefix=prefix, cluster=shared.cluster, timeout=TIMEOUT)
    backend._connection._client = shared._client
    return backend
