"""A turn's run is recorded while its model is called: seen while it runs, and no reason to pay twice."""

import asyncio
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from helix_temporal.activities._runtime import executing_workflow
from helix_temporal.activities.live import Streaming
from helix_temporal.activities.payloads import Payloads
from helix_temporal.activities.session_sync import SessionSync
from helix_temporal.activities.steps import Stepper
from helix_temporal.agents import Agent, AgentRegistry, ModelRequest, ModelResponse
from helix_temporal.errors import FencedError, StoreUnavailableError
from helix_temporal.models.checkpoints import RunStatus
from helix_temporal.models.steps import OpenSessionInput, RunStepInput, RunStepResult, StepInput
from helix_temporal.models.streams import TextChunk
from helix_temporal.session.record import SessionRecord
from helix_temporal.stores.memory.backend import MemoryBackend
from helix_temporal.stores.memory.streams import MemoryStreams
from helix_temporal.stores.protocols.threads import Create, OpenThread
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.stores.streams.writer import Writing
from helix_temporal.stores.threads.hot_only import HotThreads

EPOCH = 1_800_000_000_000_000


class Streams(MemoryStreams):
    """Where sessions are shown, unless it hangs."""

    hangs = False

    async def create_writer(self, *args: Any, **options: Any) -> Writing:
        """See the class."""
        if self.hangs:
            await asyncio.Event().wait()
        return await super().create_writer(*args, **options)


class Scene:
    """One turn of a session over memory stores, whose session store can be away or slow."""

    def __init__(self) -> None:
        backend = MemoryBackend()
        self.store = RowSessions(backend.sessions)
        self.threads = HotThreads(backend.threads)
        self.keeper = SessionSync(self.store, self.threads)
        agents = AgentRegistry([Agent(name="main", model=self)])
        self.streams = Streams()
        streaming = Streaming(self.streams)
        self.stepper = Stepper(
            self.threads, agents, Payloads(backend.payloads), states=self.keeper, streams=streaming
        )
        self.calls = 0
        self.called = asyncio.Event()
        self.answers = asyncio.Event()
        self.answers.set()

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """The model: counts, and waits until it may answer."""
        self.calls += 1
        self.called.set()
        await self.answers.wait()
        return ModelResponse("so")

    async def open(self) -> RunStepInput:
        """Open the session; the turn's first step."""
        opened = await self.threads.open(OpenThread("s", EPOCH, "o", create=Create.AUTO))
        request = OpenSessionInput(session_id="s", thread_id="s", agent="main", owner="o")
        await self.keeper.open(request, opened.header, SessionRecord(agent="main"), None)
        inputs = (StepInput(id="q", text="well?"),)
        return RunStepInput(
            session_id="s", agent="main", epoch=EPOCH, head=opened.header.head, inputs=inputs, run_id="run"
        )

    async def run_is(self, status: RunStatus) -> bool:
        """Whether the turn's run is recorded as that."""
        run = await self.store.get_run("s", "run")
        return run is not None and run.status is status


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_a_run_is_seen_while_its_model_is_called(scene: Scene) -> None:
    """Who wants to stop it must find it."""
    request = await scene.open()
    scene.answers.clear()
    step = asyncio.create_task(scene.stepper.run(request))
    await scene.called.wait()
    async with asyncio.timeout(5):
        while not await scene.run_is(RunStatus.RUNNING):  # noqa: ASYNC110 (one step at a time)
            await asyncio.sleep(0)
    scene.answers.set()
    await step
    assert await scene.run_is(RunStatus.COMPLETED)


async def test_a_run_names_the_execution_that_runs_it(scene: Scene) -> None:
    """From a session's page people go on to that of its workflow; outside of one there is nothing to name."""
    environment = ActivityEnvironment()
    await environment.run(scene.stepper.run, await scene.open())
    run = await scene.store.get_run("s", "run")
    assert run is not None
    info = environment.info
    assert (run.workflow_id, run.workflow_run_id) == (info.workflow_id, info.workflow_run_id)
    assert executing_workflow() == {}


async def test_a_model_does_not_wait_for_its_run(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit to a disk is not a part of what a user waits for."""
    request, start_run = await scene.open(), scene.store.start_run

    async def once_called(*given: Any, **more: Any) -> Any:
        await scene.called.wait()
        return await start_run(*given, **more)

    monkeypatch.setattr(scene.store, "start_run", once_called)
    async with asyncio.timeout(5):
        assert (await scene.stepper.run(request)).text == "so"
    assert await scene.run_is(RunStatus.COMPLETED)


async def test_a_store_that_is_away_makes_nobody_pay_twice(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer stands in the thread; the next attempt records the run and commits the turn."""
    request = await scene.open()

    async def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailableError("the database is away")

    with monkeypatch.context() as patched:
        patched.setattr(scene.store, "start_run", away)
        with pytest.raises(StoreUnavailableError):
            await scene.stepper.run(request)
    assert await scene.store.get_run("s", "run") is None
    found: RunStepResult = await scene.stepper.run(request)
    assert (found.text, scene.calls) == ("so", 1)
    assert await scene.run_is(RunStatus.COMPLETED)
    state = await scene.store.load_state("s")
    assert state is not None
    assert (state.head, state.current_run_id) == (found.head, None)


async def test_a_model_that_fails_leaves_its_run_recorded(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error is told, also where its run is recorded late."""
    request, start_run = await scene.open(), scene.store.start_run

    async def late(*given: Any, **more: Any) -> Any:
        await scene.called.wait()
        await asyncio.sleep(0)
        return await start_run(*given, **more)

    async def fails(_: ModelRequest) -> ModelResponse:
        scene.called.set()
        raise RuntimeError("no model")

    monkeypatch.setattr(scene.store, "start_run", late)
    monkeypatch.setattr(scene, "generate", fails)
    with pytest.raises(Exception, match="no model"):
        await scene.stepper.run(request)
    assert await scene.run_is(RunStatus.RUNNING)


async def test_a_cancelled_step_leaves_nothing_under_way(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recording that hangs does not outlive its activity."""
    request, began, ended = await scene.open(), asyncio.Event(), asyncio.Event()

    async def hangs(*_: Any, **__: Any) -> Any:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(scene.store, "start_run", hangs)
    scene.answers.clear()
    step = asyncio.create_task(scene.stepper.run(request))
    await scene.called.wait()
    await began.wait()
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    assert ended.is_set()


async def test_a_session_that_another_has_tells_so(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the model has answered meanwhile."""
    request = await scene.open()

    async def fenced(*_: Any, **__: Any) -> Any:
        raise FencedError("a newer open has the session", session_id="s")

    monkeypatch.setattr(scene.store, "start_run", fenced)
    with pytest.raises(FencedError):
        await scene.stepper.run(request)


async def test_a_run_begins_on_its_stream_where_its_first_attempt_began(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader who begins there sees all attempts, and nothing of the turns before."""
    request = await scene.open()
    earlier = await scene.streams.create_writer("s", agent_id="earlier")
    await earlier.write_many([TextChunk(delta="of"), TextChunk(delta="old")])

    async def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailableError("the database is away")

    async def fails(_: ModelRequest) -> ModelResponse:
        raise RuntimeError("no model")

    with monkeypatch.context() as patched:
        patched.setattr(scene.store, "start_run", away)
        patched.setattr(scene, "generate", fails)
        with pytest.raises(RuntimeError):
            await scene.stepper.run(request)
    await scene.stepper.run(request)
    run = await scene.store.get_run("s", "run")
    assert run is not None
    chunks = scene.streams.get_chunks_sync("s")
    assert (run.start_sequence, chunks[2].type, chunks[3].type) == (2, "run_started", "step_started")
    assert [chunk.type for chunk in chunks].count("step_started") == 2


async def test_a_stream_that_hangs_holds_no_run_up(scene: Scene) -> None:
    """The run is there to be stopped; where it begins on its stream is not known."""
    scene.streams.hangs = True
    await scene.stepper.run(await scene.open())
    run = await scene.store.get_run("s", "run")
    assert run is not None
    assert (run.status, run.start_sequence) == (RunStatus.COMPLETED, 0)
