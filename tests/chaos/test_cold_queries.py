"""A query after a kill has another worker run events of a workflow task that was not started yet."""

import asyncio
import contextlib
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import WorkflowFailureError, WorkflowHistory
from temporalio.worker import Replayer

from helix_temporal.client import SessionClient, workflow_id
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings
from helix_temporal.worker import connect
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


async def killed_queried_and_cancelled(settings: Settings, books: Path, sid: str) -> WorkflowHistory:
    """What a session has written whose worker is killed, which is queried, cancelled and closed meanwhile."""
    client, _ = await connect(settings)
    sessions = SessionClient(client, task_queue=settings.task_queue)
    handle = client.get_workflow_handle(workflow_id(sid))
    workers = [WorkerProcess(settings, books, model_seconds=60)]
    try:
        await sessions.send(sid, "hello", agent=AGENT)
        async with asyncio.timeout(30):
            pending = False
            while not pending:
                await asyncio.sleep(0.1)
                pending = bool((await handle.describe()).raw_description.pending_activities)
        workers[0].kill()
        query = asyncio.create_task(handle.query("status", rpc_timeout=timedelta(seconds=20)))
        await asyncio.sleep(1)
        await handle.cancel()
        await asyncio.sleep(0.3)
        closing = asyncio.create_task(sessions.close(sid))
        workers.append(WorkerProcess(settings, books))
        async with asyncio.timeout(60):
            await query
            await closing
            with contextlib.suppress(WorkflowFailureError):
                await handle.result()
        return await handle.fetch_history()
    finally:
        for worker in workers:
            worker.stop()


async def test_a_query_between_a_kill_and_a_cancel_leaves_a_history_that_replays(
    settings: Settings, tmp_path: Path
) -> None:
    """An update that comes with the cancel is handled in one order, whoever has asked before."""
    replayer = Replayer(workflows=[], plugins=[HelixPlugin()])
    for attempt in range(5):
        history = await killed_queried_and_cancelled(
            patient(settings), tmp_path / "books", f"queried-{attempt}"
        )
        await replayer.replay_workflow(history)
        failed = [each.workflow_task_failed_event_attributes.failure.message for each in history.events]
        if any("done again" in each for each in failed):
            return
    raise AssertionError("the query was never answered from events of a task that was not started")
