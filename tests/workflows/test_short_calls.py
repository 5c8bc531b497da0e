"""Reads, forks and long texts of a client take as long as the settings allow, by either way."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.activity.v1 import ActivityExecutionInfo
from temporalio.api.history.v1 import ActivityTaskScheduledEventAttributes
from temporalio.client import ActivityHandle, Client, WorkflowHandle

from helix_temporal.client import SessionClient
from helix_temporal.models.sessions import CallPolicy
from tests.workflows._ways import Starts, listened_to, stand
from tests.workflows.conftest import TIMEOUTS, Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")

__all__ = ["stand"]

POLICY = CallPolicy(
    store_start_to_close=17.0,
    store_schedule_to_close=171.0,
    retry_initial=0.5,
    heartbeat=7.0,
    model_start_to_close=70.0,
    model_schedule_to_close=700.0,
)


class Scheduled:
    """Remembers how the server has what a client started."""

    def __init__(self) -> None:
        self.looks: list[tuple[str, asyncio.Task[Any]]] = []

    async def see(self, handle: ActivityHandle[Any] | WorkflowHandle[Any, Any]) -> None:
        """At once: a client has an activity deleted, and a deletion ends with its own workflows."""
        if isinstance(handle, ActivityHandle):
            found: asyncio.Task[Any] = asyncio.create_task(_describe(handle))
            await asyncio.wait([found])
        else:
            found = asyncio.create_task(_scheduled(handle))
        self.looks.append((handle.id, found))

    async def scheduled(self) -> Any:
        """How the last activity was scheduled: both messages of the server have the same fields."""
        return await self.looks[-1][1]


async def _describe(handle: ActivityHandle[Any]) -> ActivityExecutionInfo:
    return (await handle.describe()).raw_info


async def _scheduled(handle: WorkflowHandle[Any, Any]) -> ActivityTaskScheduledEventAttributes:
    for _ in range(400):
        events = (await handle.fetch_history()).events
        for each in (event.activity_task_scheduled_event_attributes for event in events):
            if each.activity_id:
                return each
        await asyncio.sleep(0.02)
    raise AssertionError(f"{handle.id}: no activity was scheduled")


@pytest.fixture
def started() -> Scheduled:
    """Of this test's client."""
    return Scheduled()


@pytest.fixture
def client(stand: Stand, started: Scheduled) -> Client:
    """As an application's, with the plugin of the stand."""
    return listened_to(stand.served.client, Starts(started.see))


@pytest.fixture
def sessions(stand: Stand, client: Client) -> SessionClient:
    """Its calls have time-outs of their own."""
    return SessionClient(client, task_queue=stand.served.plugin.settings.task_queue, policy=POLICY)


async def test_a_read_has_the_time_of_a_store_operation(
    sessions: SessionClient, started: Scheduled, sid: str
) -> None:
    """Who wants a page quickly or not at all can say so."""
    await sessions.ask(sid, "hello", agent="main")
    await sessions.session(sid).list_messages()
    scheduled = await started.scheduled()
    assert scheduled.start_to_close_timeout.ToTimedelta() == timedelta(seconds=17)
    assert scheduled.schedule_to_close_timeout.ToTimedelta() == timedelta(seconds=171)
    assert scheduled.heartbeat_timeout.ToTimedelta() == timedelta(seconds=7)
    assert scheduled.retry_policy.initial_interval.ToTimedelta() == timedelta(seconds=0.5)


async def test_a_fork_has_the_time_of_a_model_call(
    sessions: SessionClient, started: Scheduled, sid: str
) -> None:
    """Its transform may ask a model."""
    await sessions.ask(sid, "hello", agent="main")
    await sessions.session(sid).fork(f"{sid}-fork")
    scheduled = await started.scheduled()
    assert scheduled.start_to_close_timeout.ToTimedelta() == timedelta(seconds=70)
    assert scheduled.schedule_to_close_timeout.ToTimedelta() == timedelta(seconds=700)
    assert scheduled.heartbeat_timeout.ToTimedelta() == timedelta(seconds=7)


async def test_a_long_text_has_the_time_of_a_store_operation(
    sessions: SessionClient, started: Scheduled, sid: str
) -> None:
    """It is one object."""
    await sessions.ask(sid, "long " * 4000, agent="main")
    started.looks = [each for each in started.looks if each[0].startswith("helix-thread/")]
    assert (await started.scheduled()).start_to_close_timeout.ToTimedelta() == timedelta(seconds=17)


async def test_time_outs_come_from_the_settings_of_the_plugin(
    stand: Stand, client: Client, started: Scheduled, sid: str
) -> None:
    """They are stated once, where the client is connected."""
    plain = SessionClient(client, task_queue=stand.served.plugin.settings.task_queue)
    await plain.ask(sid, "hello", agent="main")
    await plain.session(sid).list_messages()
    assert (await started.scheduled()).heartbeat_timeout.ToTimedelta() == TIMEOUTS.heartbeat_timeout


async def test_a_deletion_has_the_time_of_a_model_call(
    sessions: SessionClient, started: Scheduled, sid: str
) -> None:
    """A long thread is many objects."""
    await sessions.ask(sid, "hello", agent="main")
    await sessions.session(sid).close()
    await sessions.session(sid).result()
    await sessions.session(sid).delete()
    assert (await started.scheduled()).start_to_close_timeout.ToTimedelta() == timedelta(seconds=70)
