"""Terminate: no `finally` runs, the maintenance worker's sweep does what is left to do."""

import asyncio
import random
import uuid
from pathlib import Path

from temporalio.client import WorkflowExecutionStatus

from helix_temporal.client import workflow_id
from helix_temporal.models.maintenance import SweepInput, SweepResult
from helix_temporal.models.sessions import SessionOptions
from helix_temporal.settings import Settings
from helix_temporal.workflows import SweepWorkflow
from tests.chaos._agent import AGENT
from tests.chaos._names import session_id
from tests.chaos._oracle import Findings
from tests.chaos._place import Place, open_place
from tests.chaos._report import Progress, Report
from tests.chaos._settings import quick

AT_ONCE = 5


class TerminateCampaign:
    """Sessions that archive at their end only are terminated; then one sweep, then they go on."""

    def __init__(self, settings: Settings, directory: Path, *, seed: int) -> None:
        # With the default flush there would be nothing for the sweep to do.
        self._settings = quick(settings).model_copy(update={"flush": "exit"})
        self._directory, self._seed, self._random = directory, seed, random.Random(seed)

    async def run(self, points: int, progress: Progress) -> Report:
        """Terminate so many sessions, each at another instant of its third and fourth turn."""
        options = SessionOptions(idle_timeout=60)
        async with open_place(
            self._settings, self._directory, f"terminates-{self._seed}", options=options
        ) as place:
            names = [session_id("terminates", self._seed, number) for number in range(points)]
            slots = asyncio.Semaphore(AT_ONCE)

            async def one(name: str, number: int) -> None:
                async with slots:
                    await self._terminated(place, name, 0.15 * number / points)
                progress(f"terminated {name}")

            await asyncio.gather(*(one(name, number) for number, name in enumerate(names)))
            findings = await self._before_the_sweep(place, names)
            swept = await sweep(place)
            findings += await self._after_the_sweep(place, names, swept)
            figures = {"terminated": points, "swept": swept.seen, "archived_by_sweep": swept.archived}
            report = Report("terminates", self._seed, findings, figures)
        progress(report.line(), final=True)
        return report

    async def _terminated(self, place: Place, name: str, delay: float) -> None:
        people = place.people
        await people.ask(name, "hello")
        await people.ask(name, "tools=1")
        last = asyncio.create_task(self._two_more(place, name))
        await asyncio.sleep(delay + self._random.uniform(0, 0.01))
        await place.client.get_workflow_handle(workflow_id(name)).terminate("chaos")
        await last

    @staticmethod
    async def _two_more(place: Place, name: str) -> None:
        # Without an agent nobody starts the session again.
        for text in ("tools=2", "hello"):
            ask = await place.people.ask(name, text, agent=None)
            if ask.result is None:
                return

    async def _before_the_sweep(self, place: Place, names: list[str]) -> Findings:
        findings = Findings()
        for name in names:
            described = await place.client.get_workflow_handle(workflow_id(name)).describe()
            if described.status is not WorkflowExecutionStatus.TERMINATED:
                findings.others.append(f"{name}: {described.status}")
        return findings

    async def _after_the_sweep(self, place: Place, names: list[str], swept: SweepResult) -> Findings:
        """Everything that was acknowledged is in the archive, also if Redis is lost now; and it goes on."""
        findings, people = Findings(), place.people
        if swept.failures:
            findings.others.append(f"sweep failed for {swept.failed}")
        gone = [ask for ask in people.asks if ask.result is None]
        assert place.backends.tiered is not None
        for name in names:
            facts = await place.backends.threads.read_facts(name)
            if facts.archived != facts.head.position:
                findings.lost.append(f"{name}: {facts.archived} of {facts.head.position} are archived")
            await place.backends.hot.drop(name, 2**62)
        findings += _only_losses(await place.judge(names))
        for name in names:
            # Either it was in the thread, then its answer is told, or it is asked now.
            for ask in [each for each in gone if each.session == name]:
                ask.result = await people.sessions.ask(name, ask.text, agent=AGENT, message_id=ask.message_id)
        for name in names:
            await people.ask(name, "hello")
        await people.close(names)
        # A turn that was cut off by the terminate is run again, and paid again: no execution knew of it.
        return findings + await place.judge_asks(names)


def _only_losses(findings: Findings) -> Findings:
    """Whoever waited when the session was terminated is told later."""
    findings.unresolved.clear()
    return findings


async def sweep(place: Place) -> SweepResult:
    """One sweep of all hot threads."""
    return await place.client.execute_workflow(
        SweepWorkflow.run,
        SweepInput(),
        id=f"sweep-{uuid.uuid4().hex}",
        task_queue=place.settings.task_queue,
    )
