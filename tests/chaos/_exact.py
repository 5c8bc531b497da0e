"""SIGKILL at every I/O boundary of every activity of a session, on a real Temporal server."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from temporalio.client import Client

from helix_temporal.backends import Backends
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.settings import Settings
from helix_temporal.worker import connect
from tests.chaos._ledger import Ledger
from tests.chaos._names import session_id
from tests.chaos._oracle import Findings, check_books, check_thread
from tests.chaos._paid import check_paid, read_tree
from tests.chaos._people import People, read_thread
from tests.chaos._report import Progress, Report
from tests.chaos._settings import quick
from tests.chaos._workers import Dies, WorkerProcess

SCRIPT: Final = ("hello", "tools=1 large", "tools=2")
AT_ONCE: Final = 3


class ExactKills:
    """One session and one doomed worker a boundary; another worker then finishes what that one began.

    Args:
        flush: As in the settings: at the exit there is an activity for it.
    """

    def __init__(self, settings: Settings, directory: Path, *, seed: int, flush: str = "step") -> None:
        self._settings = quick(settings).model_copy(update={"flush": flush})
        self._directory, self._seed, self._flush = directory, seed, flush

    async def run(self, progress: Progress, *, at_most: int | None = None) -> Report:
        """All boundaries, or so many of them at random."""
        client, _ = await connect(self._settings)
        findings, places = await self._boundaries(client)
        dies = [Dies(kind, place, after) for kind, count in places.items() for place in range(1, count + 1)
                for after in (False, True)]  # fmt: skip
        if at_most is not None and len(dies) > at_most:
            dies = random.Random(self._seed).sample(dies, at_most)
        slots, done, died = asyncio.Semaphore(AT_ONCE), 0, 0

        async def one(each: Dies) -> None:
            nonlocal findings, done, died
            async with slots:
                found, killed = await self._case(client, each)
            findings += found
            done, died = done + 1, died + killed
            progress(f"flush {self._flush}: boundaries {done}/{len(dies)}, found {len(findings.all)}")

        await asyncio.gather(*(one(each) for each in dies))
        figures = {
            "boundaries": len(dies),
            "killed": died,
            **{k.split(".", 1)[1]: n for k, n in places.items()},
        }
        report = Report(f"exact kills, flush {self._flush}", self._seed, findings, figures)
        progress(report.line(), final=True)
        return report

    async def _boundaries(self, client: Client) -> tuple[Findings, Counter[str]]:
        """How many there are: a session whose worker does not die."""
        never = Dies("", 0)
        findings, _ = await self._case(client, never)
        events = list(Ledger(self._books(never)).read())
        return findings, Counter(
            event.facts["activity"] for event in events if event.kind == "io" and event.facts["activity"]
        )

    def _books(self, dies: Dies) -> Path:
        return self._directory / f"exact-{self._seed}-{self._flush}-{dies.name}.jsonl"

    async def _case(self, client: Client, dies: Dies) -> tuple[Findings, bool]:
        name = session_id("exact kills", self._seed, self._flush, dies.name)
        settings = self._settings.model_copy(update={"task_queue": name})
        options = SessionOptions(idle_timeout=60)
        people = People(client, settings, options=options, seed=self._seed, ask_timeout=40)
        script = asyncio.create_task(self._play(people, name))
        deaths: dict[int, int] = {}
        async with _worker(settings, self._books(dies), dies) as doomed:
            ended = asyncio.create_task(doomed.ended())
            await asyncio.wait({script, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not script.done():
                deaths[doomed.pid] = time.monotonic_ns()
                async with _worker(settings, self._books(dies), None):
                    findings = await script
            else:
                findings = script.result()
        await ended
        return findings + await self._judge(people, name, dies, deaths), bool(deaths)

    async def _play(self, people: People, name: str) -> Findings:
        for text in SCRIPT:
            await people.ask(name, text)
        wrong = await people.ask_again([ask for ask in people.asks[:1] if ask.result is not None])
        await people.close([name])
        return Findings(wrong_answers=wrong)

    async def _judge(self, people: People, name: str, dies: Dies, deaths: dict[int, int]) -> Findings:
        backends = Backends(self._settings)
        try:
            messages = await read_thread(backends, name)
            hot = await backends.hot.read_header(name)
            tree = await read_tree(backends, name, {name: messages})
        finally:
            await backends.close()
        events = list(Ledger(self._books(dies)).read())
        findings = check_thread(name, people.asks, messages)
        findings += check_books(events, {name: messages}, deaths) + check_paid(tree, events, deaths)
        if hot is not None:
            findings.others.append(f"{name}: still hot after its end")
        for ask in people.asks:
            if ask.result is not None and ask.result.status is not AskStatus.ANSWERED:
                findings.others.append(f"{ask.message_id}: {ask.result}")
        return findings


@contextlib.asynccontextmanager
async def _worker(settings: Settings, books: Path, dies: Dies | None) -> AsyncIterator[WorkerProcess]:
    worker = WorkerProcess(settings, books, model_seconds=0, dies=dies)
    try:
        yield worker
    finally:
        await asyncio.to_thread(worker.kill)
