"""Activities called as a worker calls them, on real stores, without a Temporal server."""

import asyncio
import dataclasses
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from temporalio.testing import ActivityEnvironment

from helix_temporal.agents import (
    Agent,
    Hooks,
    ModelEvent,
    ModelRequest,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
)
from helix_temporal.backends import Backends
from helix_temporal.models.agents import BeforeUserMessage
from helix_temporal.models.steps import (
    OpenSessionInput,
    OpenSessionResult,
    RunStepInput,
    RunStepResult,
    StepInput,
)
from helix_temporal.settings import Settings
from helix_temporal.stores.protocols.threads import FlushThread
from tests.chaos._agent import AGENT, BookedModel, chaos_agent
from tests.chaos._backends import BookedHot, WrappedBackends
from tests.chaos._boundaries import Boundaries, Killed
from tests.chaos._ledger import Ledger
from tests.chaos._shape import shape_of

_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Task:
    """One activity task as the server gives it to every attempt."""

    activity: str
    request: Any
    scheduled: datetime
    run: str


class PieceModel(BookedModel):
    """Answers in pieces, each of which is a boundary: streams break off, hang, or their worker dies."""

    def __init__(self, ledger: Ledger, boundaries: Boundaries) -> None:
        super().__init__(ledger, seconds=0)
        self._boundaries = boundaries

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """The text in two pieces, then what is asked for, then all of it."""
        token, response = self._respond(request)
        text = str(response.content)
        pieces: list[ModelEvent] = [TextDelta(text[:8]), TextDelta(text[8:])]
        for call in response.tool_calls[:1]:
            arguments = json.dumps(dict(call.arguments))[:100]
            pieces += [ToolCallStarted(call.id, call.name), ToolArgumentsDelta(call.id, arguments)]
        for piece in pieces:
            yield await self._boundaries.around("model.piece", partial(_given, piece))
        self._given(request, token)
        yield response


async def _given(piece: ModelEvent) -> ModelEvent:
    return piece


async def _longer(event: BeforeUserMessage) -> str:
    """A hook that makes more of a message than travels in a workflow."""
    return f"{event.text} and so on"


class Worker:
    """The activities of one process: its own caches over the shared stores."""

    def __init__(self, backends: Backends, agent: Agent, boundaries: Boundaries) -> None:
        self._boundaries = boundaries
        self.activities = {
            getattr(each, "__temporal_activity_definition").name: each
            for each in backends.make_activities([agent])
        }

    async def attempt(self, task: Task, number: int = 1) -> Any:
        """Run one attempt of a task.

        Raises:
            Killed: The process has ended, whatever of it was at work then.
        """
        environment = ActivityEnvironment()
        environment.info = dataclasses.replace(
            environment.info,
            activity_type=task.activity,
            scheduled_time=task.scheduled,
            workflow_run_id=task.run,
            activity_id=str(task.scheduled.timestamp()),
            attempt=number,
        )
        work = asyncio.ensure_future(environment.run(self.activities[task.activity], task.request))
        dead = asyncio.create_task(self._boundaries.dead.wait())
        try:
            await asyncio.wait({work, dead}, return_when=asyncio.FIRST_COMPLETED)
            if self._boundaries.dead.is_set():
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
                raise Killed
            return await work
        finally:
            dead.cancel()


class Stage:
    """Shared stores, any number of workers on them, and a clock that schedules.

    Attributes:
        backends: For looking at, never disturbed.
        calm: A worker that nothing happens to.
    """

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self._settings, self.ledger = settings, ledger
        self.backends = Backends(settings)
        self._booked = BookedHot(self.backends.hot, ledger)
        self._seconds = itertools.count()
        self._made: list[Backends] = []
        self.calm = self.worker()
        self._calm = self._made.pop()

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings, directory: Path) -> AsyncIterator["Stage"]:
        """A stage whose connections are closed at the end."""
        stage = cls(settings, Ledger(directory / "stage.jsonl"))
        try:
            yield stage
        finally:
            await stage.leave()
            await stage._close(stage._calm)
            await stage.backends.close()
            stage.ledger.close()

    async def leave(self) -> None:
        """Close what workers have opened, all but the calm one."""
        made, self._made = self._made, []
        for each in made:
            await self._close(each)

    @staticmethod
    async def _close(made: Backends) -> None:
        # Threads are the stage's, behind faults that must not strike now; sessions are a worker's own.
        for place in made._places.values():
            await place.close()

    def worker(self, boundaries: Boundaries | None = None) -> Worker:
        """Another process."""
        around = boundaries or Boundaries()
        blobs = self.backends.blobs
        assert blobs is not None
        backends = WrappedBackends(
            self._settings,
            hot=lambda _: around.around_store(self._booked, "hot"),
            blobs=lambda _: around.around_store(blobs, "blobs"),
            around=around.around_store,
        )
        self._made.append(backends)
        agent = chaos_agent(
            self.ledger,
            tool_seconds=0,
            model=PieceModel(self.ledger, around),
            hooks=Hooks(before_user_message=_longer),
        )
        return Worker(backends, agent, around)

    def task(self, activity: str, request: Any, *, run: str = "run-1") -> Task:
        """Schedule an activity: later ones have later times."""
        return Task(activity, request, _BEGIN + timedelta(seconds=next(self._seconds)), run)

    # -- what a session workflow does, undisturbed

    async def opened(self, session: str, *, run: str = "run-1", **fields: Any) -> OpenSessionResult:
        """Open a session."""
        request = open_input(session, run, **fields)
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
            request = tool_results(session, handle.epoch, step, message_id=message_id)
            step = await worker.attempt(self.task("helix.sessions.run_step", request))
        assert isinstance(step, RunStepResult)
        return step

    async def cold(self, session: str, epoch: int) -> None:
        """Archive and drop."""
        assert self.backends.tiered is not None
        await self.backends.tiered.flush(FlushThread(session, epoch))
        await self.backends.tiered.evict(session, epoch)

    async def shape(self, session: str) -> str:
        """All that matters of a session, and of those it is made from or works for."""
        names = [session, *(f"{session}-{other}" for other in ("source", "parent", "root"))]
        shapes = [await shape_of(self.backends, name) for name in names]
        return "\n".join(shapes).replace(session, "SESSION")


def run_of(message_id: str) -> str:
    """The run of the turn that begins with this message."""
    return f"run-of-{message_id}"


def open_input(session: str, run: str, **fields: Any) -> OpenSessionInput:
    """An open by one execution."""
    return OpenSessionInput(session_id=session, thread_id=session, agent=AGENT, owner=run, **fields)


def step_input(session: str, epoch: int, head: Any, texts: list[tuple[str, str]]) -> RunStepInput:
    """A step of users' messages."""
    inputs = tuple(StepInput(id=each, text=text) for each, text in texts)
    run_id = run_of(texts[0][0] if texts else "u2")
    return RunStepInput(session_id=session, agent=AGENT, epoch=epoch, head=head, inputs=inputs, run_id=run_id)


def tool_results(
    session: str, epoch: int, step: RunStepResult, *, message_id: str = "u2", **fields: Any
) -> RunStepInput:
    """The step that brings the results of all calls, with these fields more."""
    inputs = tuple(
        StepInput(id=f"{step.head.last_id}.{number}", text="touched", call=call.id, name=call.name, **fields)
        for number, call in enumerate(step.calls)
    )
    return RunStepInput(
        session_id=session,
        agent=AGENT,
        epoch=epoch,
        head=step.head,
        inputs=inputs,
        run_id=run_of(message_id),
    )
