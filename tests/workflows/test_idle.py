"""Idle times of a day, in Temporal's environments that skip time."""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.testing import WorkflowEnvironment

from helix_temporal.client import SessionClient, workflow_id
from helix_temporal.devstack import programs
from helix_temporal.devstack.temporal import SOURCE, TEST_SERVER, dynamic_config_arguments
from helix_temporal.models.sessions import SessionOptions
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings
from helix_temporal.worker import HelixWorker
from tests.workflows._desk import Desk

pytestmark = pytest.mark.asyncio(loop_scope="session")

DAY = 24 * 3600.0


@asynccontextmanager
async def served(environment: WorkflowEnvironment, plugin: HelixPlugin) -> AsyncIterator[SessionClient]:
    """Sessions that are idle for a day before they end, with stores in memory and a directory."""
    async with environment, HelixWorker(environment.client, plugin):
        yield SessionClient(
            environment.client,
            task_queue=plugin.settings.task_queue,
            options=SessionOptions(idle_timeout=DAY),
        )


async def until_completed(environment: WorkflowEnvironment, session_id: str) -> None:
    """Return once the session's run has completed, in real time."""
    handle = environment.client.get_workflow_handle(workflow_id(session_id))
    for _ in range(1500):
        if (await handle.describe()).status is WorkflowExecutionStatus.COMPLETED:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the session goes on")


@pytest.fixture
def plugin(tmp_path: Path, unique: str) -> HelixPlugin:
    settings = Settings(task_queue=unique, cold_directory=tmp_path)
    return HelixPlugin(settings, agents=Desk().agents())


async def test_a_session_ends_after_an_idle_day_and_starts_again(plugin: HelixPlugin) -> None:
    """On the test server, which has one clock for all."""
    environment = await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=str(programs.find_program(TEST_SERVER, os.environ)), plugins=[plugin]
    )
    async with served(environment, plugin) as sessions:
        sid = f"s-{uuid.uuid4().hex[:8]}"
        await sessions.ask(sid, "hello", agent="main")
        await environment.sleep(DAY - 60)
        assert (await sessions.session(sid).get_status()).status == "idle"
        await environment.sleep(120)
        await until_completed(environment, sid)
        assert await plugin.backends.hot.read_header(sid) is None
        assert (await sessions.ask(sid, "again", agent="main")).text == "3: again"
        await sessions.session(sid).close()
        await until_completed(environment, sid)


async def test_a_message_after_half_a_day_starts_the_idle_day_anew(plugin: HelixPlugin) -> None:
    """The one timer is set again for what is left, not for each message."""
    environment = await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=str(programs.find_program(TEST_SERVER, os.environ)), plugins=[plugin]
    )
    async with served(environment, plugin) as sessions:
        sid = f"s-{uuid.uuid4().hex[:8]}"
        await sessions.ask(sid, "hello", agent="main")
        first = (await environment.client.get_workflow_handle(workflow_id(sid)).describe()).run_id
        await environment.sleep(DAY / 2)
        await sessions.ask(sid, "again")
        await environment.sleep(DAY * 0.7)
        # A day after the first message has passed: it lives on, for the second one.
        assert (await sessions.ask(sid, "still there")).text == "5: still there"
        handle = environment.client.get_workflow_handle(workflow_id(sid))
        assert (await handle.describe()).run_id == first
        await environment.sleep(DAY + 60)
        await until_completed(environment, sid)
        timers = [
            event
            async for event in handle.fetch_history_events()
            if event.HasField("timer_started_event_attributes")
        ]
        assert len(timers) <= 4


@pytest.mark.skipif(
    not hasattr(WorkflowEnvironment, "start_time_skipping_v2"),
    reason="this SDK has no clock per workflow yet",
)
async def test_a_session_ends_after_an_idle_day_on_a_clock_of_its_own(plugin: HelixPlugin) -> None:
    """On the real server with a clock per workflow."""
    environment = await WorkflowEnvironment.start_time_skipping_v2(
        dev_server_existing_path=str(programs.find_program(SOURCE, os.environ)),
        dev_server_extra_args=dynamic_config_arguments(),
        plugins=[plugin],
    )
    async with served(environment, plugin) as sessions:
        sid = f"s-{uuid.uuid4().hex[:8]}"
        with environment.with_time_skipping_disabled():
            await sessions.ask(sid, "hello", agent="main")
        handle = environment.client.get_workflow_handle(workflow_id(sid))
        await environment.fast_forward(handle, DAY + 60)
        ended = await asyncio.wait_for(sessions.session(sid).result(), 30)
        assert ended.status == "completed"
        assert await plugin.backends.hot.read_header(sid) is None
