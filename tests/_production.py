"""Redis with an archive in S3, as several processes have them, and a Redis that is wiped."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

from redis.asyncio import Redis

from helix_temporal import Backends, Settings
from helix_temporal.stores.protocols.sessions import SessionStore
from tests import _services


class Production:
    """Redis without PostgreSQL, and S3: each program has connections of its own."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._opened: list[Backends] = []

    @classmethod
    @asynccontextmanager
    async def opened(cls, redis_url: str, redis_prefix: str, s3_prefix: str) -> AsyncIterator[Self]:
        """Prefixes of a test's own."""
        variables = {
            "HELIX_ALLOW_PLAINTEXT": "true",
            "HELIX_REDIS_URL": redis_url,
            "HELIX_REDIS_PREFIX": redis_prefix,
            **_services.service("s3"),
            "HELIX_S3_PREFIX": s3_prefix,
        }
        made = cls(Settings.from_env(variables))
        try:
            yield made
        finally:
            await made.close()

    def backends(self, **changes: Any) -> Backends:
        """As another process has them."""
        self._opened.append(Backends(self.settings.model_copy(update=changes)))
        return self._opened[-1]

    def store(self) -> SessionStore:
        """The session store of another process."""
        sessions = self.backends().sessions
        assert sessions is not None
        return sessions

    async def sweep(self) -> None:
        """What the maintenance worker does, dropping what is archived."""
        assert not (await self.backends().sweep(evict=True)).failures

    async def wipe(self) -> None:
        """FLUSHALL, as far as this test's keys go."""
        async with Redis.from_url(self.settings.redis_url or "") as client:
            keys = [key async for key in client.scan_iter(f"{self.settings.redis_prefix}*")]
            assert await client.delete(*keys)

    async def close(self) -> None:
        """Close all connections."""
        for each in self._opened:
            await each.close()
