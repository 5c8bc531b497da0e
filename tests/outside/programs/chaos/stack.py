"""The servers and worker processes of one run, and what can be done to them."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import redis.asyncio

from helix_temporal.devstack import Stack


@dataclass
class Workers:
    """Worker processes that are killed, frozen and replaced; all of them end with the run."""

    environment: dict[str, str]
    directory: Path
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    thawed_at: dict[int, int] = field(default_factory=dict)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """One more."""
        log = (self.directory / "workers.log").open("ab")
        worker = subprocess.Popen(
            [sys.executable, "-m", "chaos.worker", *arguments],
            env=self.environment,
            stdout=log,
            stderr=log,
        )
        log.close()
        self.running.append(worker)
        return worker

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        """As a crash does."""
        self.running.remove(worker)
        worker.kill()
        worker.wait()

    async def freeze(self, worker: subprocess.Popen[bytes], seconds: float) -> None:
        """As a machine that is paused: it goes on where it was, and knows of nothing."""
        if worker not in self.running:
            return  # killed meanwhile
        os.kill(worker.pid, signal.SIGSTOP)
        await asyncio.sleep(seconds)
        if worker.poll() is None:
            os.kill(worker.pid, signal.SIGCONT)

    def stop(self) -> None:
        """End all."""
        for worker in list(self.running):
            self.kill(worker)


class HotStore:
    """Redis as an accident leaves it."""

    def __init__(self, url: str) -> None:
        self._redis = redis.asyncio.Redis.from_url(url)
        self._copy: dict[bytes, tuple[int, bytes]] = {}

    async def wipe(self) -> None:
        """Everything is gone."""
        await self._redis.flushall()

    async def remember(self) -> None:
        """Take a copy."""
        copy: dict[bytes, tuple[int, bytes]] = {}
        async for key in self._redis.scan_iter(count=1000):
            body, ttl = await self._redis.dump(key), await self._redis.pttl(key)
            if body is not None:
                copy[key] = (max(int(ttl), 0), body)
        self._copy = copy

    async def roll_back(self) -> None:
        """The copy is there again, in one step, and nothing else."""
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.flushall()
        for key, (ttl, body) in self._copy.items():
            pipeline.restore(key, ttl, body)
        await pipeline.execute()

    async def lasting_keys(self) -> list[str]:
        """Keys without a time to live."""
        keys = [key async for key in self._redis.scan_iter(count=1000)]
        lasting = [key.decode() for key in keys if await self._redis.pttl(key) == -1]
        return sorted(lasting)

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()


def restart_postgres(stack: Stack, seconds: float) -> None:
    """Down for a while, with all its connections cut; blocks."""
    server = stack.servers["postgres"]
    server.stop()
    time.sleep(seconds)
    server.start()
