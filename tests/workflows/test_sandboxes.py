"""Workers of other shapes: nothing cached, and workflows loaded without the plugin."""

import uuid
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from helix_temporal.agents import Agent
from helix_temporal.backends import Backends
from helix_temporal.client import SessionClient
from helix_temporal.devstack import S3Endpoint
from helix_temporal.errors import HelixError, SessionInterruptedError
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.settings import Settings
from helix_temporal.testing.serving import session_worker
from helix_temporal.workflows import WORKFLOWS
from tests.workflows._desk import Desk, echo, first_tools_then
from tests.workflows.conftest import make_settings

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture
def own(temporal_address: str, redis_url: str, s3: S3Endpoint, unique: str) -> Settings:
    """Settings of the test's own."""
    return make_settings(temporal_address, redis_url, s3, unique)


async def test_a_session_without_any_workflow_cache(own: Settings) -> None:
    """Each workflow task replays from the start: what is not deterministic fails here."""
    desk = Desk()
    options = SessionOptions(idle_timeout=60, max_turns_per_run=3)
    async with session_worker(own, desk.agents(), options=options, max_cached_workflows=0) as served:
        sid = f"s-{uuid.uuid4().hex[:8]}"
        desk.scripts[sid] = first_tools_then("done", "a", "b")
        for number in range(5):
            result = await served.sessions.ask(sid, f"q{number}", agent="hooked", timeout=60)
            assert (result.status, result.text) == (AskStatus.ANSWERED, "done")
        await served.sessions.session(sid).close()
        await served.sessions.session(sid).result()
        messages = await served.sessions.session(sid).get_messages()
    assert [message.role for message in messages] == ["user", "assistant", "tool", "tool", "assistant"] * 5


async def test_a_cancel_without_any_workflow_cache(own: Settings) -> None:
    """Clean-up after a cancel is replayed with every task of it."""
    from helix_temporal.client import workflow_id

    desk = Desk()
    async with session_worker(own, desk.agents(), max_cached_workflows=0) as served:
        sid = f"s-{uuid.uuid4().hex[:8]}"
        await served.sessions.ask(sid, "hello", agent="hooked", timeout=60)
        await served.client.get_workflow_handle(workflow_id(sid)).cancel()
        with pytest.raises(SessionInterruptedError):
            await served.sessions.session(sid).result()
        status = await served.sessions.session(sid).get_status()
    assert all(receipt.ok for receipt in status.receipts)
    assert desk.names_heard(sid)[-1] == "session_ended"


def activities(settings: Settings, agents: list[Agent]) -> tuple[Backends, list[Any]]:
    backends = Backends(settings)
    return backends, backends.make_activities(agents)


async def test_workflows_load_and_run_in_the_default_sandbox(own: Settings) -> None:
    """A worker built by hand, without the plugin's pass-through, loads the package anew for each run."""
    desk = Desk()
    client = await Client.connect(own.temporal_address, data_converter=pydantic_data_converter)
    backends, found = activities(own, desk.agents())
    worker = Worker(
        client,
        task_queue=own.task_queue,
        workflows=list(WORKFLOWS),
        activities=found,
        workflow_runner=SandboxedWorkflowRunner(),
        workflow_failure_exception_types=[HelixError],
    )
    sessions = SessionClient(client, task_queue=own.task_queue)
    sid = f"s-{uuid.uuid4().hex[:8]}"
    try:
        async with worker:
            desk.scripts[sid] = lambda request: (
                first_tools_then("done", "x")(request) if len(request.messages) < 3 else echo(request)
            )
            assert (await sessions.ask(sid, "hello", agent="main", timeout=60)).text == "3: x"
            await sessions.session(sid).close()
            await sessions.session(sid).result()
            assert len(await sessions.session(sid).get_messages()) == 4
    finally:
        await backends.close()


async def test_every_workflow_of_the_pack_is_valid_in_the_default_sandbox() -> None:
    """Loading alone, as `Replayer` does it: without a server."""
    Replayer(workflows=list(WORKFLOWS), workflow_runner=SandboxedWorkflowRunner())


async def test_no_name_of_an_activity_is_registered_twice(own: Settings) -> None:
    """Two of one name would be an error at worker start, on somebody's production system."""
    backends, found = activities(own, Desk().agents())
    definitions = [activity._Definition.must_from_callable(each) for each in found]
    names = [definition.name for definition in definitions]
    assert len(names) == len(set(names))
    await backends.close()
