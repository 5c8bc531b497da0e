"""Workers without a session in their cache: an update is handled there as on every later replay."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from temporalio.api.enums.v1 import EventType
from temporalio.worker import Replayer

from helix_temporal.agents import ToolContext
from helix_temporal.client import workflow_id
from helix_temporal.devstack import S3Endpoint
from helix_temporal.errors import SessionTerminatedError
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings
from helix_temporal.testing.serving import Served, session_worker
from tests.workflows._desk import Desk, Gate
from tests.workflows._embedded import EmbeddedSession
from tests.workflows.conftest import make_settings
from tests.workflows.test_waits import LOCATE, asks_once

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture(scope="module")
def forgetful() -> Desk:
    """What the agents of these tests do."""
    return Desk()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cold(
    temporal_address: str, redis_url: str, s3: S3Endpoint, forgetful: Desk
) -> AsyncIterator[Served]:
    """A worker that replays every workflow task from the start."""
    settings = make_settings(temporal_address, redis_url, s3, f"t{uuid.uuid4().hex[:12]}")
    async with session_worker(
        settings,
        forgetful.agents(),
        options=SessionOptions(idle_timeout=60),
        max_cached_workflows=0,
        workflows=[EmbeddedSession],
        drain=1.0,
    ) as served:
        yield served


@pytest.fixture
def name() -> str:
    return f"s-{uuid.uuid4().hex[:8]}"


async def replays(served: Served, session_id: str) -> None:
    """All that the session has written replays."""
    replayer = Replayer(workflows=[EmbeddedSession], plugins=[HelixPlugin()])
    async for each in served.client.list_workflows(f"WorkflowId = '{workflow_id(session_id)}'"):
        history = await served.client.get_workflow_handle(each.id, run_id=each.run_id).fetch_history()
        await replayer.replay_workflow(history)


async def tasks(served: Served, session_id: str, count: int) -> None:
    """Wait until so many workflow tasks of the newest run are done, and none is under way."""
    handle = served.client.get_workflow_handle(workflow_id(session_id))
    done: list[str] = []
    while done.count("COMPLETED") < count or done[-1] != "COMPLETED":
        await asyncio.sleep(0.05)
        names = [EventType.Name(each.event_type) for each in (await handle.fetch_history()).events]
        done = [each.rpartition("_")[2] for each in names if "WORKFLOW_TASK" in each]
    assert done.count("COMPLETED") == count


async def test_a_message_that_is_sent_again_when_nobody_waited_for_its_turn(
    cold: Served, forgetful: Desk, name: str
) -> None:
    """The turn is over before the update, although nothing that the turn commanded stands between them."""
    gate = Gate()
    forgetful.scripts[name] = gate.then()
    await cold.sessions.send(name, "hello", agent="main", message_id="m")
    async with asyncio.timeout(20):
        await gate.reached.wait()
        await cold.client.get_workflow_handle(workflow_id(name)).signal("tell_parent")
        await tasks(cold, name, 3)
        gate.opened.set()
        await tasks(cold, name, 4)
    answer = await cold.sessions.ask(name, "hello", agent="main", message_id="m", timeout=20)
    assert (answer.status, answer.text) == (AskStatus.ANSWERED, "1: hello")
    assert (await cold.sessions.ask(name, "more", timeout=20)).status is AskStatus.ANSWERED
    await replays(cold, name)


async def test_a_turn_that_is_stopped_when_its_tools_have_run(
    cold: Served, forgetful: Desk, name: str
) -> None:
    """It waits for a person only, before the update comes."""
    first, second = Gate(), Gate()

    async def act(what: str, context: ToolContext) -> str:
        await (first if what == "first" else second).passing()
        return what

    forgetful.acts[name] = act
    calls = [("act", {"what": "first"}), ("act", {"what": "second"}), LOCATE]
    forgetful.scripts[name] = asks_once(*calls)
    asked = await cold.sessions.ask(name, "go", agent="people", timeout=20)
    assert asked.status is AskStatus.SUSPENDED
    async with asyncio.timeout(20):
        await asyncio.gather(first.reached.wait(), second.reached.wait())
        await tasks(cold, name, 3)
        first.opened.set()
        await tasks(cold, name, 4)
        second.opened.set()
        await tasks(cold, name, 5)
    stopped = await cold.sessions.session(name).stop(abort=True)
    assert stopped
    assert (await cold.sessions.ask(name, "more", timeout=20)).status is AskStatus.SUSPENDED
    await replays(cold, name)


@contextlib.asynccontextmanager
async def terminated(settings: Settings, name: str, desk: Desk, agent: str) -> AsyncIterator[Served]:
    """A worker for a session that was terminated with an event that no worker has run."""
    async with session_worker(settings, desk.agents(), drain=0.5) as served:
        await served.sessions.ask(name, "hello", agent=agent, timeout=20)
    handle = served.client.get_workflow_handle(workflow_id(name))
    await handle.signal("tell_parent")
    await handle.terminate()
    async with session_worker(settings, desk.agents(), drain=0.5) as later:
        yield later
        await later.sessions.session(name).close()


@pytest.fixture
def settings(temporal_address: str, redis_url: str, s3: S3Endpoint) -> Settings:
    return make_settings(temporal_address, redis_url, s3, f"t{uuid.uuid4().hex[:12]}")


async def test_the_status_of_a_session_that_was_terminated_with_an_event_that_nobody_has_run(
    settings: Settings, name: str
) -> None:
    """No worker can answer: each query brings it, and there will be no task.  It was "no worker"."""
    async with terminated(settings, name, Desk(), "main") as later:
        with pytest.raises(SessionTerminatedError, match="start it again with ask"):
            await later.sessions.session(name).get_status()
        asked = await later.sessions.ask(name, "more", agent="main", timeout=30)
        assert asked.status is AskStatus.ANSWERED


async def test_a_call_of_such_a_session_is_answered(settings: Settings, name: str) -> None:
    """Its stores know whom to start again."""
    desk = Desk()
    desk.scripts[name] = asks_once(LOCATE)
    async with terminated(settings, name, desk, "people") as later:
        state = await later.sessions.session(name).get_state()
        assert state is not None
        (call,) = state.pending_client_tool_calls
        reply = await later.sessions.session(name).submit_tool_result(call, "here", wait=True, timeout=30)
        assert reply.result is not None
        assert reply.result.status is AskStatus.ANSWERED
