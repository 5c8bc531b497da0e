"""A worker whose S3 is behind a proxy, and a Redis that can be wiped."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import redis.asyncio
from temporalio.service import RPCError

from helix_temporal.client import SessionClient
from helix_temporal.devstack import S3Endpoint
from helix_temporal.models.sessions import SessionInfo, SessionOptions
from helix_temporal.testing.proxy import FaultProxy
from helix_temporal.testing.serving import Served, session_worker
from tests.workflows._desk import Desk
from tests.workflows.conftest import Stand, make_settings


@dataclass(frozen=True)
class Shore:
    """A stand whose S3 is behind a proxy, and names for the sessions of a test."""

    stand: Stand
    proxy: FaultProxy
    names: tuple[str, str, str]

    @property
    def served(self) -> Served:
        return self.stand.served

    @property
    def sessions(self) -> SessionClient:
        return self.stand.sessions

    async def wipe(self) -> None:
        """Redis loses everything of this worker."""
        settings = self.stand.served.plugin.settings
        async with redis.asyncio.from_url(settings.redis_url or "") as client:
            async for key in client.scan_iter(match=f"{settings.redis_prefix}*"):
                await client.delete(key)

    async def users(self, name: str) -> list[str]:
        """What the user said in the thread's finished turns."""
        return [each.text for each in await self.stand.messages(name) if each.role == "user"]

    async def status(self, name: str, wanted: Callable[[SessionInfo], bool]) -> SessionInfo:
        """The session's status, once it is as wanted."""
        info = await self.sessions.session(name).get_status()
        for _ in range(400):
            if wanted(info):
                return info
            await asyncio.sleep(0.05)
            info = await self.sessions.session(name).get_status()
        raise AssertionError(f"the status is not as wanted: {info}")

    async def tried(self, name: str, times: int) -> None:
        """Wait until the session's activity has been tried so often."""
        for _ in range(400):
            described = await self.stand.handle(name).describe()
            if any(each.attempt >= times for each in described.raw_description.pending_activities):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{name}: no activity was tried {times} times")


@contextlib.asynccontextmanager
async def shore(
    temporal_address: str, redis_url: str, s3: S3Endpoint, **changes: Any
) -> AsyncIterator[Shore]:
    """A worker with these settings, while the block runs; its sessions are terminated afterwards."""
    desk, name = Desk(), f"t{uuid.uuid4().hex[:12]}"
    names = (f"{name}-a", f"{name}-b", f"{name}-c")
    async with FaultProxy.start(s3.endpoint) as proxy:
        fields = {"s3_endpoint": f"http://{proxy.address}"} | changes
        settings = make_settings(temporal_address, redis_url, s3, name, **fields)
        options = SessionOptions(idle_timeout=60)
        async with session_worker(settings, desk.agents(), options=options, drain=1.0) as served:
            found = Shore(Stand(served, desk), proxy, names)
            yield found
            proxy.refuse(False)
            proxy.forget()
            for each in names:
                with contextlib.suppress(RPCError):  # it had ended, or never began
                    await found.stand.handle(each).terminate()
