"""Redis loses everything, goes back in time, or is away; S3 has every step by default."""

import asyncio
import random
import shutil
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from helix_temporal.devstack import Valkey
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.settings import Settings
from tests.chaos._names import session_id
from tests.chaos._oracle import Findings
from tests.chaos._people import read_thread
from tests.chaos._place import Place, busy, open_place
from tests.chaos._report import Progress, Report
from tests.chaos._settings import quick

OPTIONS = SessionOptions(idle_timeout=120, max_turns_per_run=7)


class RedisCampaigns:
    """All on one Redis of their own."""

    def __init__(self, settings: Settings, valkey: Valkey, directory: Path, *, seed: int) -> None:
        self._settings = quick(settings, heartbeat=20).model_copy(update={"redis_url": valkey.url})
        self._valkey, self._directory, self._seed = valkey, directory, seed
        self._random = random.Random(seed)

    async def wiped_at_turns(self, turns: int, progress: Progress) -> Report:
        """Everything in Redis is gone after each turn."""
        async with self._open("wiped-at-turns") as place:
            name = session_id("redis wiped at turns", self._seed)
            for turn in range(turns):
                await place.people.ask(name, "tools=2" if turn % 3 == 1 else "hello")
                await self._wipe()
                progress(f"wiped {turn + 1}/{turns}")
            return await self._report(
                place, "redis wiped at turns", [name], progress, wipes=turns, exact=True
            )

    async def wiped_at_random(self, wipes: int, progress: Progress) -> Report:
        """Everything in Redis is gone at random instants of running sessions."""
        async with self._open("wiped-at-random") as place:
            names = [session_id("redis wiped at random", self._seed, number) for number in range(3)]
            async with busy(place.people, names):
                for wipe in range(wipes):
                    # Wiped faster than threads can be hydrated, a step gives up: such a Redis is down.
                    await asyncio.sleep(self._random.uniform(0, 0.5))
                    await self._wipe()
                    progress(f"wiped {wipe + 1}/{wipes}, asks {len(place.people.asks)}")
            return await self._report(
                place, "redis wiped at random", names, progress, wipes=wipes, exact=True
            )

    async def rolled_back(self, times: int, progress: Progress) -> Report:
        """Redis is restarted from an older copy of its data, at random instants of running sessions."""
        async with self._open("rolled-back") as place:
            names = [session_id("redis rolled back", self._seed, number) for number in range(3)]
            copy = self._directory / "valkey-copy"
            async with busy(place.people, names):
                for time in range(times):
                    await asyncio.sleep(self._random.uniform(0.1, 0.4))
                    await asyncio.to_thread(self._copy, copy)
                    await asyncio.sleep(self._random.uniform(0.2, 1.0))
                    await asyncio.to_thread(self._restore, copy)
                    await place.people.next_answer(30)
                    progress(f"rolled back {time + 1}/{times}, asks {len(place.people.asks)}")
            return await self._report(place, "redis rolled back", names, progress, rollbacks=times)

    async def down(self, seconds: float, progress: Progress) -> Report:
        """Redis is away for some seconds under running sessions."""
        async with self._open("down") as place:
            names = [session_id("redis down", self._seed, number) for number in range(3)]
            async with busy(place.people, names):
                await place.people.next_answer(30)
                await asyncio.to_thread(self._valkey.stop, kill=True)
                await asyncio.sleep(seconds)
                await asyncio.to_thread(self._valkey.start)
                await place.people.next_answer(60)
                await asyncio.sleep(0.5)
            return await self._report(place, "redis down", names, progress, seconds_down=seconds)

    # -- how

    def _open(self, name: str) -> AbstractAsyncContextManager[Place]:
        return open_place(
            self._settings, self._directory, f"{name}-{self._seed}", options=OPTIONS, seed=self._seed
        )

    async def _wipe(self) -> None:
        await asyncio.to_thread(self._valkey.ask, "FLUSHALL")

    def _copy(self, target: Path) -> None:
        self._valkey.stop()
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self._valkey.directory, target)
        self._valkey.start()

    def _restore(self, source: Path) -> None:
        self._valkey.stop(kill=True)
        shutil.rmtree(self._valkey.directory)
        shutil.copytree(source, self._valkey.directory)
        self._valkey.start()

    async def _report(
        self,
        place: Place,
        name: str,
        names: list[str],
        progress: Progress,
        *,
        exact: bool = False,
        **figures: float,
    ) -> Report:
        """``exact``: not one model call more than there are answers."""
        people = place.people
        unanswered = [
            f"{ask.message_id}: {ask.result}"
            for ask in people.asks
            if ask.result is not None and ask.result.status is not AskStatus.ANSWERED
        ]
        wrong = await people.ask_again([ask for ask in people.asks[-8:] if ask.result is not None])
        await people.close(names)
        findings = await place.judge(names) + Findings(wrong_answers=wrong, others=unanswered)
        threads = [await read_thread(place.backends, each) for each in names]
        answers = sum(message.role == "assistant" for thread in threads for message in thread)
        again = place.model_calls() - answers
        if exact and again:
            findings.others.append(f"{again} model calls more than answers: {place.repeated_calls()}")
        counts = {"asks": len(people.asks), "answers": answers, "model_calls_more_than_answers": again}
        report = Report(name, self._seed, findings, {**figures, **counts})
        progress(report.line(), final=True)
        return report
