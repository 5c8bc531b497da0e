"""Writers are killed, Redis is wiped and rolled back, S3 comes and goes; then the oracle looks."""

import asyncio
import contextlib
import importlib
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import redis.asyncio as redis

from helix_temporal import Backends, Settings
from helix_temporal.stores.protocols.hot import scan_threads
from helix_temporal.stores.threads.sweep import sweep_thread
from helix_temporal.testing.proxy import FaultProxy
from tests.docs._pages import ROOT
from tests.frameworks.chaos.ledger import Turn, read_turns
from tests.frameworks.chaos.oracle import Loss, find_violations

WRITERS: Final = ("a", "b", "c")


@dataclass(slots=True)
class Report:
    """What one run came to.

    Attributes:
        violations: Empty, or something is wrong.
        faults: How often which fault struck.
        acknowledged: Turns that a writer was told to be there.
        excused: Of them, those that only Redis had when it lost them.
    """

    violations: list[str]
    faults: Counter[str]
    acknowledged: int
    excused: int
    errors: str = ""


@dataclass(slots=True)
class Campaign:
    """One run of writers through one adapter.

    Attributes:
        adapter: The name of a module of `tests.frameworks.chaos.adapters`.
        variables: Of PostgreSQL for states, and Redis and S3 for threads; Redis is this run's own.
        directory: For ledgers and logs.
    """

    adapter: str
    variables: Mapping[str, str]
    directory: Path
    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    losses: list[Loss] = field(default_factory=list)
    archived_until: int = 0
    _writers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    async def run(self, seconds: float) -> Report:
        """Strike for so long, let everything settle, and look."""
        choose = random.Random(self.seed)
        async with FaultProxy.start(self.variables["HELIX_S3_ENDPOINT"]) as s3, self._opened() as backends:
            try:
                for name in WRITERS:
                    self._start(name, s3)
                await self._wait_for_turns(len(WRITERS), 120)
                await self._strike(choose, seconds, s3, backends)
            finally:
                for writer in self._writers.values():
                    writer.kill()
                    writer.wait()
            return await self._judge(backends)

    async def _strike(
        self, choose: random.Random, seconds: float, s3: FaultProxy, backends: Backends
    ) -> None:
        menu: list[tuple[str, int, Callable[[], Awaitable[None]]]] = [
            ("kill", 4, lambda: self._kill(choose, s3)),
            ("sweep", 3, lambda: self._sweep(backends)),
            ("wipe", 2, lambda: self._wipe(backends)),
            ("roll back", 2, lambda: self._roll_back(choose, backends)),
            ("s3", 2, lambda: self._flap(choose, s3, backends)),
        ]
        # Each once, whatever the seed; then by chance.
        order = [name for name, _, _ in menu]
        choose.shuffle(order)
        until = time.monotonic() + seconds
        while order or time.monotonic() < until:
            chosen = choose.choices(menu, [weight for _, weight, _ in menu])[0][0]
            name = order.pop() if order else chosen
            self.faults[name] += 1
            await next(fault for each, _, fault in menu if each == name)()
            await self._wait_for_turns(choose.randint(1, 9), 20)

    def _start(self, name: str, s3: FaultProxy) -> None:
        with (self.directory / "writers.log").open("ab") as log:
            self._writers[name] = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.frameworks.chaos.writer",
                    self.adapter,
                    name,
                    str(self._ledgers),
                ],
                env={**self.variables, "HELIX_S3_ENDPOINT": f"http://{s3.address}"},
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stderr=log,
            )

    async def _wait_for_turns(self, more: int, seconds: float) -> None:
        """Until so many turns have been acknowledged since; a fault that nobody met would show nothing."""
        wanted = self._count_acknowledged() + more
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._count_acknowledged() < wanted:  # noqa: ASYNC110 (other processes write files)
                    await asyncio.sleep(0.1)

    def _count_acknowledged(self) -> int:
        turns = (each for name in WRITERS for each in read_turns(self._ledgers, name))
        return sum(each.acknowledged_at is not None for each in turns)

    async def _kill(self, choose: random.Random, s3: FaultProxy) -> None:
        name = choose.choice(WRITERS)
        self._writers[name].kill()
        self._writers[name].wait()
        self._start(name, s3)

    async def _sweep(self, backends: Backends) -> None:
        """Archive, as the scheduled sweep does; what was acknowledged before is then safe."""
        began = time.monotonic_ns()
        is_all_archived = True
        async for each in scan_threads(backends.hot):
            result = await sweep_thread(backends.hot, backends.threads, each.thread_id)
            is_all_archived &= result.outcome in {"archived", "clean", "gone"} and not result.detail
            self.faults[f"sweep: {result.outcome} {result.detail.partition(':')[0]}".strip()] += 1
        if is_all_archived:
            self.archived_until = began
        archive = getattr(self._module, "archive", None)
        if archive is not None:
            await archive(backends)

    async def _wipe(self, backends: Backends) -> None:
        await self._sweep(backends)
        async with self._redis() as client:
            await client.flushall()
        self.losses.append(Loss(self.archived_until, time.monotonic_ns()))

    async def _roll_back(self, choose: random.Random, backends: Backends) -> None:
        """Redis goes back to a copy; between the two most is archived."""
        async with self._redis() as client:
            began = time.monotonic_ns()
            copy = {key: await client.dump(key) async for key in client.scan_iter(count=1000)}
            await asyncio.sleep(choose.uniform(0.2, 1.0))
            await self._sweep(backends)
            await asyncio.sleep(choose.uniform(0, 0.3))
            pipeline = client.pipeline(transaction=True)
            pipeline.flushall()
            for key, body in copy.items():
                if body is not None:
                    pipeline.restore(key, 0, body)
            await pipeline.execute()
        self.losses.append(Loss(max(began, self.archived_until), time.monotonic_ns()))

    async def _flap(self, choose: random.Random, s3: FaultProxy, backends: Backends) -> None:
        """S3 is away for writers, who read archived turns from there; a sweep comes behind."""
        s3.refuse()
        await asyncio.sleep(choose.uniform(0.5, 1.5))
        s3.refuse(False)
        await self._sweep(backends)

    async def _judge(self, backends: Backends) -> Report:
        turns: list[Turn] = [each for name in WRITERS for each in read_turns(self._ledgers, name)]
        found = await self._read(backends)
        violations = find_violations(turns, found, self.losses)
        await self._sweep(backends)
        async with self._redis() as client:
            await client.flushall()
        again = await self._read(backends)
        if again != found:
            violations.append(f"the archive alone has {len(again)} texts, and there were {len(found)}")
        acknowledged = [each for each in turns if each.acknowledged_at is not None]
        excused = [each for each in acknowledged if f"{each.name} q" not in set(found)]
        log = (self.directory / "writers.log").read_text()
        return Report(violations, self.faults, len(acknowledged), len(excused), log[-2000:])

    async def _read(self, backends: Backends) -> list[str]:
        found: list[str] = await self._module.read_texts(backends)
        return found

    @property
    def _module(self) -> Any:
        return importlib.import_module(f"tests.frameworks.chaos.adapters.{self.adapter}")

    @property
    def _ledgers(self) -> Path:
        path = self.directory / "ledgers"
        path.mkdir(exist_ok=True)
        return path

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[Backends]:
        backends = Backends(Settings.from_env(self.variables))
        try:
            yield backends
        finally:
            await backends.close()

    @contextlib.asynccontextmanager
    async def _redis(self) -> AsyncIterator[redis.Redis]:
        client = redis.Redis.from_url(self.variables["HELIX_REDIS_URL"])
        try:
            yield client
        finally:
            await client.aclose()
