"""A backend for the length of a test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from helix_temporal.stores.redis import RedisBackend


@asynccontextmanager
async def backend_on(url: str, prefix: str = "helix:", timeout: float = 5.0) -> AsyncIterator[RedisBackend]:
    """A backend that is closed at the end."""
    backend = RedisBackend(url, prefix=prefix, timeout=timeout)
    try:
        yield backend
    finally:
        await backend.close()


def pool_of(backend: RedisBackend) -> Any:
    """The driver's pool of a backend that is in use; the driver has no types for what tests look at."""
    client: Any = backend._connection._client
    return client.connection_pool
