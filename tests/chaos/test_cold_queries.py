"""A query after a kill or a freeze has another worker run events of a workflow task that is not done."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError, WorkflowHandle, WorkflowQueryFailedError
from temporalio.service import RPCError
from temporalio.worker import Replayer

from helix_temporal.client import SessionClient, workflow_id
from helix_temporal.client._updates import PASSING
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings
from helix_temporal.worker import connect
from helix_temporal.workflows.runners import TASK_NOT_DONE
from tests.chaos._agent import AGENT
from tests.chaos._settings import quick
from tests.chaos._workers import WorkerProcess

pytestmark = pytest.mark.slow


def patient(settings: Settings) -> Settings:
    """The server waits for a killed worker for as long as the test needs."""
    fast = quick(settings)
    timeouts = fast.timeouts.model_copy(
        update={"sticky_queue_schedule_to_start_timeout": timedelta(seconds=4)}
    )
    return fast.model_copy(update={"timeouts": timeouts})


@dataclass
class Story:
    """A session of a worker that is killed, which is queried meanwhile.

    Attributes:
        refused: The query came with events of a task that was not done.
    """

    sessions: SessionClient
    handle: WorkflowHandle[Any, Any]
    workers: list[WorkerProcess]
    refused: bool = False

    @classmethod
    async def begin(cls, settings: Settings, books: Path, sid: str, *, model_seconds: float) -> "Story":
        """Its worker serves."""
        client, _ = await connect(settings)
        options = SessionOptions(idle_timeout=3)
        sessions = SessionClient(client, task_queue=settings.task_queue, options=options)
        workers = [WorkerProcess(settings, books, model_seconds=model_seconds)]
        return cls(sessions, client.get_workflow_handle(workflow_id(sid)), workers)

    async def query(self) -> None:
        """As a person does on the server's pages, who asks again if the server has lost the query."""
        async with asyncio.timeout(90):
            while True:
                try:
                    await self.handle.query("status", rpc_timeout=timedelta(seconds=15))
                except WorkflowQueryFailedError as error:
                    assert error.message == TASK_NOT_DONE  # noqa: PT017 (it may as well be answered)
                    self.refused = True
                except RPCError as error:
                    # The killed worker had it: the server tells so at once, or not at all.
                    if error.status not in PASSING:
                        raise
                    continue
                return

    async def check_replays(self) -> None:
        """All that was written."""
        history = await self.handle.fetch_history()
        await Replayer(workflows=[], plugins=[HelixPlugin()]).replay_workflow(history)

    def stop(self) -> None:
        """End all workers."""
        for worker in self.workers:
            worker.stop()


async def cancelled(settings: Settings, books: Path, sid: str) -> bool:
    """It is cancelled and closed while its worker is away; whether the query was refused."""
    story = await Story.begin(settings, books, sid, model_seconds=60)
    try:
        await story.sessions.send(sid, "hello", agent=AGENT)
        async with asyncio.timeout(30):
            pending = False
            while not pending:
                await asyncio.sleep(0.1)
                pending = bool((await story.handle.describe()).raw_description.pending_activities)
        story.workers[0].kill()
        query = asyncio.create_task(story.query())
        await asyncio.sleep(1)
        await story.handle.cancel()
        await asyncio.sleep(0.3)
        closing = asyncio.create_task(story.sessions.session(sid).close())
        story.workers.append(WorkerProcess(settings, books))
        async with asyncio.timeout(100):
            await asyncio.gather(query, closing)
            with contextlib.suppress(WorkflowFailureError):
                await story.handle.result()
        await story.check_replays()
        return story.refused
    finally:
        story.stop()


async def idle(settings: Settings, books: Path, sid: str) -> bool:
    """Its timer fires while its worker is away, and another message comes; whether the query was refused."""
    story = await Story.begin(settings, books, sid, model_seconds=0.03)
    try:
        assert (await story.sessions.ask(sid, "one", agent=AGENT, timeout=30)).status is AskStatus.ANSWERED
        await asyncio.sleep(1.2)
        # On a busy machine the session may have ended meanwhile: then it begins again.
        asked = await story.sessions.ask(sid, "two", agent=AGENT, timeout=30)
        assert asked.status is AskStatus.ANSWERED
        story.workers[0].kill()
        query = asyncio.create_task(story.query())
        await asyncio.sleep(3.2)
        story.workers.append(WorkerProcess(settings, books))
        await query
        asked = await story.sessions.ask(sid, "three", agent=AGENT, timeout=30)
        assert asked.status is AskStatus.ANSWERED
        assert (await story.sessions.session(sid).get_status()).turns
        await story.check_replays()
        return story.refused
    finally:
        story.stop()


async def frozen(settings: Settings, books: Path, sid: str) -> bool:
    """Its worker hangs with the task of a timer, when a message comes; whether the query was refused."""
    story = await Story.begin(settings, books, sid, model_seconds=0.03)
    try:
        assert (await story.sessions.ask(sid, "one", agent=AGENT, timeout=30)).status is AskStatus.ANSWERED
        await asyncio.sleep(1.2)
        # On a busy machine the session may have ended meanwhile: then it begins again.
        asked = await story.sessions.ask(sid, "two", agent=AGENT, timeout=30)
        assert asked.status is AskStatus.ANSWERED
        story.workers[0].freeze()
        query = asyncio.create_task(story.query())
        await asyncio.sleep(3.2)
        story.workers.append(WorkerProcess(settings, books))
        asking = asyncio.create_task(story.sessions.ask(sid, "three", agent=AGENT, timeout=60))
        await query
        assert (await asking).status is AskStatus.ANSWERED
        assert (await story.sessions.session(sid).get_status()).turns
        await story.check_replays()
        return story.refused
    finally:
        story.workers[0].kill()
        story.stop()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("story", [cancelled, idle, frozen])
async def test_a_query_after_a_kill_leaves_a_history_that_replays(
    settings: Settings, tmp_path: Path, story: Callable[[Settings, Path, str], Awaitable[bool]]
) -> None:
    """Updates, and the time, are those of the tasks that the server started, whoever has asked before."""
    # A busy machine lets the moment pass now and then.
    for attempt in range(12):
        if await story(patient(settings), tmp_path / "books", f"{story.__name__}-{attempt}"):
            return
    raise AssertionError("no query came with events of a task that was not done")
