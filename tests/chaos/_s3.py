"""S3 is down when a session ends, or slow, cut off and away in turns while sessions run."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from unittest import mock

from helix_temporal.coldtier import flush as breaker
from helix_temporal.devstack import Valkey
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.settings import Settings
from helix_temporal.testing.proxy import CutReply, FaultProxy, StallReply
from tests.chaos._names import session_id
from tests.chaos._oracle import Findings
from tests.chaos._place import Place, open_place
from tests.chaos._place import busy as people_busy
from tests.chaos._report import Progress, Report
from tests.chaos._settings import quick
from tests.chaos._terminates import sweep


class S3Campaigns:
    """Behind a proxy that breaks off, with a Redis of their own to look into."""

    def __init__(self, settings: Settings, valkey: Valkey, directory: Path, *, seed: int) -> None:
        quickly = quick(settings)
        update = {"finaliser_budget": timedelta(seconds=2), "flush_attempt": timedelta(seconds=0.5)}
        self._settings = quickly.model_copy(
            update={"redis_url": valkey.url, "timeouts": quickly.timeouts.model_copy(update=update)}
        )
        self._valkey, self._directory, self._seed = valkey, directory, seed
        self._random = random.Random(seed)

    @contextlib.asynccontextmanager
    async def _open(self, name: str) -> AsyncIterator[tuple[Place, FaultProxy]]:
        assert self._settings.s3_endpoint is not None
        async with FaultProxy.start(self._settings.s3_endpoint) as proxy:
            settings = self._settings.model_copy(update={"s3_endpoint": f"http://{proxy.address}"})
            options = SessionOptions(idle_timeout=60, max_turns_per_run=7)
            opened = open_place(
                settings,
                self._directory,
                f"{name}-{self._seed}",
                options=options,
                seed=self._seed,
                looking=self._settings,
            )
            async with opened as place:
                yield place, proxy

    async def down_at_exit(self, sessions: int, progress: Progress) -> Report:
        """S3 goes during the last turn; the session ends all the same, and a sweep archives it later."""
        async with self._open("s3-down") as (place, proxy):
            names = [session_id("s3 down at exit", self._seed, number) for number in range(sessions)]
            for name in names:
                await place.people.ask(name, "hello")
            proxy.refuse()
            for name in names:
                await place.people.ask(name, "tools=1")
            findings = await self._end(place, names)
            findings.others += await self._expiring()
            proxy.refuse(False)
            before = {name: (await place.backends.threads.read_facts(name)).epoch for name in names}
            swept = await sweep(place)
            progress(f"swept {swept}")
            findings += await self._archived(place, names, before)
            await asyncio.to_thread(self._valkey.ask, "FLUSHALL")
            findings += await place.judge(names)
            figures = {"sessions": sessions, "archived_by_sweep": swept.archived}
            report = Report("s3 down at exit", self._seed, findings, figures)
        progress(report.line(), final=True)
        return report

    async def _end(self, place: Place, names: list[str]) -> Findings:
        """Every session ends and says that it is not archived, and why."""
        findings = Findings()
        for name in names:
            await place.people.sessions.session(name).close()
        for name in names:
            result = await place.people.sessions.session(name).result()
            flush = next((receipt for receipt in result.receipts if receipt.name == "flush"), None)
            if flush is None or flush.ok or not flush.detail:
                findings.others.append(f"{name}: receipts {result.receipts} do not say what is not archived")
            if await place.backends.hot.read_header(name) is None:
                findings.lost.append(f"{name}: dropped from Redis, not archived")
        return findings

    async def _expiring(self) -> list[str]:
        """Keys that may vanish: what is not archived must not be among them.

        What was shown live may, and which archive the threads go to: each process writes that anew.
        """
        stored = await asyncio.to_thread(self._valkey.ask, "KEYS", "*")
        assert isinstance(stored, list)
        kept = [key for key in map(str, stored) if "}:stream" not in key]
        keys, found = [key for key in kept if "{helix~2farchive}" not in key], []
        for key in keys:
            ttl = await asyncio.to_thread(self._valkey.ask, "TTL", str(key))
            if ttl != -1:
                found.append(f"key {key} expires in {ttl} s")
        return found if keys else ["no key is left in Redis"]

    async def _archived(self, place: Place, names: list[str], epochs: dict[str, int]) -> Findings:
        findings = Findings()
        for name in names:
            facts = await place.backends.threads.read_facts(name)
            if facts.archived != facts.head.position:
                findings.lost.append(f"{name}: {facts.archived} of {facts.head.position} are archived")
            if facts.epoch != epochs[name]:
                findings.others.append(f"{name}: the sweep opened it anew")
        return findings

    async def flapping(self, rounds: int, progress: Progress) -> Report:
        """Replies are cut or stall, the server goes and comes, while sessions run."""
        async with self._open("s3-flapping") as (place, proxy):
            names = [session_id("s3 flapping", self._seed, number) for number in range(3)]
            # A breaker that stays open for long would keep most of the trouble away from us.
            patience = mock.patch.object(breaker, "PAUSE_SECONDS", 0.2)
            with patience:
                async with people_busy(place.people, names):
                    for number in range(rounds):
                        await self._trouble(proxy)
                        progress(f"trouble {number + 1}/{rounds}, asks {len(place.people.asks)}")
            unanswered = [
                f"{ask.message_id}: {ask.result}"
                for ask in place.people.asks
                if ask.result is not None and ask.result.status is not AskStatus.ANSWERED
            ]
            # What a closed breaker left unarchived is archived at the end.
            await place.people.close(names)
            await sweep(place)
            findings = await place.judge(names) + Findings(others=unanswered)
            for name in names:
                facts = await place.backends.threads.read_facts(name)
                if facts.archived != facts.head.position:
                    findings.lost.append(f"{name}: {facts.archived} of {facts.head.position} are archived")
            figures = {"rounds": rounds, "asks": len(place.people.asks), "connections": proxy.connections}
            report = Report("s3 flapping", self._seed, findings, figures)
        progress(report.line(), final=True)
        return report

    async def _trouble(self, proxy: FaultProxy) -> None:
        kind = self._random.choice(("cut", "cut", "stall", "away", "well"))
        if kind == "away":
            proxy.refuse()
            await asyncio.sleep(self._random.uniform(0, 0.6))
            proxy.refuse(False)
        elif kind != "well":
            after = self._random.choice((0, 0, 1, 40, 400))
            proxy.fail(
                CutReply(after) if kind == "cut" else StallReply(after), skip=self._random.randrange(4)
            )
        await asyncio.sleep(self._random.uniform(0, 0.3))
