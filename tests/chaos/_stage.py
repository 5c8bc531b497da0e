"""Activities called as a worker calls them, on real stores, without a Temporal server."""

import dataclasses
import itertools
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from temporalio.testing import ActivityEnvironment

from helix_temporal.agents import Agent
from helix_temporal.backends import Backends
from helix_temporal.errors import ThreadNotFoundError
from helix_temporal.models.steps import (
    OpenSessionInput,
    OpenSessionResult,
    RunStepInput,
    RunStepResult,
    StepInput,
)
from helix_temporal.settings import Settings
from helix_temporal.stores.protocols.threads import FlushThread
from tests.chaos._agent import AGENT, chaos_agent
from tests.chaos._backends import BookedHot, WrappedBackends
from tests.chaos._boundaries import Boundaries
from tests.chaos._ledger import Ledger
from tests.chaos._people import read_thread

_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Task:
    """One activity task as the server gives it to every attempt."""

    activity: str
    request: Any
    scheduled: datetime
    run: str


class Worker:
    """The activities of one process: its own caches over the shared stores."""

    def __init__(self, backends: Backends, agent: Agent) -> None:
        self.activities = {
            getattr(each, "__temporal_activity_definition").name: each
            for each in backends.activities([agent])
        }

    async def attempt(self, task: Task, number: int = 1) -> Any:
        """Run one attempt of a task."""
        environment = ActivityEnvironment()
        environment.info = dataclasses.replace(
            environment.info,
            activity_type=task.activity,
            scheduled_time=task.scheduled,
            workflow_run_id=task.run,
            attempt=number,
        )
        return await environment.run(self.activities[task.activity], task.request)


class Stage:
    """Shared stores, any number of workers on them, and a clock that schedules.

    Attributes:
        backends: For looking at, never disturbed.
        calm: A worker that nothing happens to.
    """

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self._settings, self.ledger = settings, ledger
        self.backends = Backends(settings)
        self._agent = chaos_agent(ledger, model_seconds=0, tool_seconds=0)
        self._booked = BookedHot(self.backends.hot, ledger)
        self._seconds = itertools.count()
        self._made: list[Backends] = []
        self.calm = self.worker()

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings, directory: Path) -> AsyncIterator["Stage"]:
        """A stage whose connections are closed at the end."""
        stage = cls(settings, Ledger(directory / "stage.jsonl"))
        try:
            yield stage
        finally:
            # Threads are the stage's, behind faults that must not strike now; sessions are a worker's own.
            for place in [each for made in stage._made for each in made._places.values()]:
                await place.close()
            await stage.backends.close()
            stage.ledger.close()

    def worker(self, boundaries: Boundaries | None = None) -> Worker:
        """Another process."""
        around = boundaries or Boundaries()
        blobs = self.backends.blobs
        assert blobs is not None
        backends = WrappedBackends(
            self._settings,
            hot=lambda _: around.around_store(self._booked, "hot"),
            blobs=lambda _: around.around_store(blobs, "blobs"),
        )
        self._made.append(backends)
        return Worker(backends, self._agent)

    def task(self, activity: str, request: Any, *, run: str = "run-1") -> Task:
        """Schedule an activity: later ones have later times."""
        return Task(activity, request, _BEGIN + timedelta(seconds=next(self._seconds)), run)

    # -- what a session workflow does, undisturbed

    async def opened(self, session: str, *, run: str = "run-1", **fields: Any) -> OpenSessionResult:
        """Open a session."""
        request = OpenSessionInput(session_id=session, thread_id=session, agent=AGENT, owner=run, **fields)
        found: OpenSessionResult = await self.calm.attempt(self.task("helix.sessions.open", request, run=run))
        return found

    async def turn(
        self,
        session: str,
        opened: OpenSessionResult,
        text: str = "hello",
        *,
        message_id: str,
        results: bool = True,
    ) -> RunStepResult:
        """One turn; without ``results`` it stops where tools are to run."""
        worker, handle = self.calm, opened.handle
        step = await worker.attempt(
            self.task(
                "helix.sessions.run_step",
                step_input(session, handle.epoch, handle.head, [(message_id, text)]),
            )
        )
        if step.calls and results:
            request = tool_results(session, handle.epoch, step)
            step = await worker.attempt(self.task("helix.sessions.run_step", request))
        assert isinstance(step, RunStepResult)
        return step

    async def cold(self, session: str, epoch: int) -> None:
        """Archive and drop."""
        assert self.backends.tiered is not None
        await self.backends.tiered.flush(FlushThread(session, epoch))
        await self.backends.tiered.evict(session, epoch)

    async def shape(self, thread_id: str) -> str:
        """All that matters of a thread, the same for two threads with the same story."""
        try:
            facts = await self.backends.threads.facts(thread_id)
        except ThreadNotFoundError:
            return "not there"
        messages = await read_thread(self.backends, thread_id)
        state = json.loads(facts.slice or b"{}")
        # Each call has its own price; how many there were is in the tokens of their answers.
        state.get("usage", {}).pop("input_tokens", None)
        rows = [f"{each.role} {each.text} {len(each.tool_calls)}" for each in messages]
        whole = json.dumps([facts.head.position, facts.committed, facts.closed, state, rows], indent=0)
        return re.sub(r"#[0-9a-f]{16}|[A-Za-z0-9_-]{16}\.\d", "#", whole).replace(thread_id, "THREAD")


def step_input(session: str, epoch: int, head: Any, texts: list[tuple[str, str]]) -> RunStepInput:
    """A step of users' messages."""
    inputs = tuple(StepInput(id=each, text=text) for each, text in texts)
    return RunStepInput(session_id=session, agent=AGENT, epoch=epoch, head=head, inputs=inputs)


def tool_results(session: str, epoch: int, step: RunStepResult) -> RunStepInput:
    """The step that brings the results of all calls."""
    inputs = tuple(
        StepInput(id=f"{step.head.last_id}.{number}", text="touched", call=call.id, name=call.name)
        for number, call in enumerate(step.calls)
    )
    return RunStepInput(session_id=session, agent=AGENT, epoch=epoch, head=step.head, inputs=inputs)
