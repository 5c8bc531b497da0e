"""SIGKILL: workers die at random instants under running sessions."""

import asyncio
import random
import signal
import statistics
import time
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from temporalio.client import Client

from helix_temporal.backends import Backends
from helix_temporal.models.messages import Message
from helix_temporal.models.sessions import SessionOptions
from helix_temporal.settings import Settings
from helix_temporal.worker import connect
from tests.chaos._ledger import Ledger
from tests.chaos._names import session_id
from tests.chaos._oracle import Findings, check_books, check_thread
from tests.chaos._people import People, read_thread
from tests.chaos._replays import check_replays
from tests.chaos._report import Progress, Report
from tests.chaos._settings import quick
from tests.chaos._workers import WorkerProcess

RECOVERY_SECONDS = 60.0
"""Without an answer for so long after a kill, a session hangs."""


class KillCampaign:
    """Sessions with several askers each, on one worker at a time that is killed and replaced.

    Args:
        turns_per_run: Sessions continue as new after so many turns.
        graceful: SIGTERM instead of SIGKILL: the worker drains while its successor serves already.
    """

    name = "kills"
    _manner: Mapping[str, Any] = MappingProxyType({})
    """How the people of this campaign ask."""
    _aloud = False
    """Whether models say what they think word by word."""

    def __init__(
        self, settings: Settings, directory: Path, *, seed: int, sessions: int = 4, askers: int = 2,
        turns_per_run: int = 6,
        graceful: bool = False,
    ) -> None:  # fmt: skip
        if graceful:
            self.name = "drains"
        self._settings = quick(settings)
        self._directory = directory
        self.books = directory / f"{session_id(self.name, seed)}.jsonl"
        self._random, self._seed = random.Random(seed), seed
        self.session_ids = [session_id(self.name, seed, number) for number in range(sessions)]
        self._askers = askers
        self._options = SessionOptions(
            idle_timeout=120, max_turns_per_run=turns_per_run, suspend="exit" if seed % 2 else "wait"
        )
        self._graceful, self._drains = graceful, list[float]()
        self._deaths: dict[int, int] = {}
        self._recoveries: list[float] = []
        self._stuck: list[str] = []
        self._going = True

    async def run(self, kills: int, progress: Progress) -> Report:
        """Kill so many workers, then let everything finish, and look."""
        client = await self._connect()
        people = People(client, self._settings, options=self._options, seed=self._seed, **self._manner)
        began = time.monotonic()
        worker = self._worker()
        asking = [
            asyncio.create_task(people.keep_asking(name, asker, lambda: self._going))
            for name in self.session_ids
            for asker in range(self._askers)
        ]
        others = [asyncio.create_task(each) for each in self._along(client, people)]
        try:
            for number in range(kills):
                worker = await self._kill(worker, people)
                self._show(progress, people, number + 1, kills)
            await people.next_answer(RECOVERY_SECONDS)
            self._going = False
            await asyncio.gather(*asking)
            report = await self._judge(people, time.monotonic() - began)
        finally:
            self._going = False
            for task in (*asking, *others):
                task.cancel()
            await asyncio.gather(*asking, *others, return_exceptions=True)
            worker.stop()
        progress(report.line(), final=True)
        return report

    async def _connect(self) -> Client:
        client, _ = await connect(self._settings)
        return client

    def _worker(self) -> WorkerProcess:
        return WorkerProcess(self._settings, self.books, aloud=self._aloud)

    def _along(self, client: Client, people: People) -> list[Coroutine[Any, Any, None]]:
        """What else goes on until the end."""
        return []

    async def _instant(self, people: People) -> bool:
        """Wait for an instant at which a kill may do harm; false if it does not come."""
        return await people.next_answer(RECOVERY_SECONDS)

    async def _after_kill(self) -> None:
        """What else happens while no worker is there."""

    async def _kill(self, worker: WorkerProcess, people: People) -> WorkerProcess:
        """Most kills hit a worker at work, some one that is just starting."""
        if self._random.random() < 0.85 and not await self._instant(people):
            self._stuck.append(
                f"no answer within {RECOVERY_SECONDS:.0f} s before kill {len(self._deaths) + 1}"
            )
        await asyncio.sleep(self._random.uniform(0, 0.5))
        if self._graceful:
            return await self._replace(worker)
        killed = time.monotonic()
        worker.kill()
        self._deaths[worker.pid] = time.monotonic_ns()
        worker.stop()
        await self._after_kill()
        successor = self._worker()
        asyncio.get_running_loop().create_task(self._time(people, killed))
        return successor

    async def _replace(self, worker: WorkerProcess) -> WorkerProcess:
        successor = self._worker()
        began = time.monotonic()
        worker.terminate()
        code = await worker.ended()
        self._drains.append(time.monotonic() - began)
        if code and (code != -signal.SIGTERM or self._served(worker.pid)):
            self._stuck.append(f"a worker that was to drain ended with {code}")
        worker.stop()
        return successor

    def _served(self, pid: int) -> bool:
        """Whether a worker came so far: one that is just starting has nothing to drain, and ends at once."""
        return any(event.kind == "serving" and event.pid == pid for event in Ledger(self.books).read())

    async def _time(self, people: People, killed: float) -> None:
        if await people.next_answer(RECOVERY_SECONDS):
            self._recoveries.append(people.answered_at[-1] - killed)

    def _show(self, progress: Progress, people: People, kills: int, wanted: int) -> None:
        resolved = sum(ask.result is not None for ask in people.asks)
        progress(
            f"kills {kills}/{wanted}, asks {len(people.asks)}, resolved {resolved}, stuck {len(self._stuck)}"
        )

    async def _judge(self, people: People, seconds: float) -> Report:
        again = people.asks[-20:]
        wrong = await people.ask_again([ask for ask in again if ask.result is not None])
        await people.close(self.session_ids)
        threads = await read_all(self._settings, self.session_ids)
        findings = sum(
            (
                check_thread(name, [ask for ask in people.asks if ask.session == name], threads[name])
                for name in self.session_ids
            ),
            start=self._excused(check_books(Ledger(self.books).read(), threads, self._deaths), threads),
        )
        findings += Findings(wrong_answers=wrong, others=self._stuck)
        findings += await check_replays(people.client, self.session_ids, self._directory)
        findings += await self._further(threads)
        figures = {
            "kills": len(self._deaths) + len(self._drains),
            "sessions": len(self.session_ids),
            "asks": len(people.asks),
            "asked_again": people.asked_again,
            "messages": sum(map(len, threads.values())),
            "model_calls": sum(event.kind == "model" for event in Ledger(self.books).read()),
            "recovery_median_seconds": round(statistics.median(self._recoveries or [0]), 2),
            "recovery_worst_seconds": round(max(self._recoveries, default=0), 2),
            "seconds": round(seconds, 1),
            "answers_of_people": dict(people.submissions),
            **self._counts(),
        }
        if self._graceful:
            figures |= {"drain_worst_seconds": round(max(self._drains, default=0), 2)}
        return Report(self.name, self._seed, findings, figures)

    def _excused(self, findings: Findings, threads: Mapping[str, Sequence[Message]]) -> Findings:
        """What the books say, without what must be in this campaign."""
        return findings

    async def _further(self, threads: Mapping[str, Sequence[Message]]) -> Findings:
        """What else a campaign looks at."""
        return Findings()

    def _counts(self) -> dict[str, Any]:
        """What else a campaign counts."""
        return {}


async def read_all(settings: Settings, names: Sequence[str]) -> dict[str, list[Message]]:
    """Threads as the stores have them."""
    backends = Backends(settings)
    try:
        return {name: await read_thread(backends, name) for name in names}
    finally:
        await backends.close()
