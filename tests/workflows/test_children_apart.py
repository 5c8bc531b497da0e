"""Sub-agents on a task queue of their own: who serves them, and what becomes of a call where nobody does."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import pytest
import pytest_asyncio
from temporalio.client import WorkflowExecutionStatus
from temporalio.testing import ActivityEnvironment

from helix_temporal.activities.sub_agents import ChildActivities
from helix_temporal.agents import Agent, AgentRegistry, agent_tool
from helix_temporal.devstack import S3Endpoint
from helix_temporal.errors import AgentNotServedError
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.models.waiting import HasStartedInput
from helix_temporal.settings import Settings
from helix_temporal.testing.serving import Served, session_worker
from tests.workflows._desk import Desk
from tests.workflows._team import Team
from tests.workflows.conftest import Crew, make_settings

pytestmark = pytest.mark.asyncio(loop_scope="session")


@dataclass(frozen=True)
class Apart(Crew):
    """A worker that serves the callers, and the settings of one that may serve those whom they call."""

    elsewhere: Settings

    def specialists(self) -> AbstractAsyncContextManager[Served]:
        """A worker of the other task queue, while the block lasts."""
        helper = next(each for each in self.team.agents() if each.name == "helper")
        return session_worker(self.elsewhere, [helper], drain=1.0)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def apart(temporal_address: str, redis_url: str, s3: S3Endpoint) -> AsyncIterator[Apart]:
    """The callers' worker alone."""
    team, name = Team(), f"t{uuid.uuid4().hex[:12]}"
    settings = make_settings(temporal_address, redis_url, s3, name)
    there = settings.model_copy(update={"task_queue": f"{name}-there"})

    def caller(name: str, start_within: float, called: str = "helper") -> Agent:
        queue = there.task_queue
        helper = agent_tool("helper", agent=called, task_queue=queue, start_within=start_within)
        return Agent(name=name, model=team, tools=[helper])

    callers = [caller("hasty", 1), caller("brisk", 8), caller("patient", 60), caller("wrong", 60, "who")]
    options = SessionOptions(idle_timeout=60)
    async with session_worker(settings, callers, options=options, drain=1.0) as served:
        yield Apart(served, Desk(), team, there)


async def told(apart: Apart, sid: str) -> str:
    """What the model reads as the result of its newest call."""
    result = [each for each in await apart.messages(sid) if each.role == "tool"][-1]
    assert result.is_error
    return result.text


async def test_a_call_that_nobody_serves_ends_with_an_error_that_says_so(apart: Apart, sid: str) -> None:
    """The model can try another way, and whoever runs it knows which worker to start."""
    result = await apart.sessions.ask(sid, "one", agent="hasty", timeout=30)
    assert result.status is AskStatus.ANSWERED
    said = await told(apart, sid)
    assert AgentNotServedError.__name__ in said
    assert repr(apart.elsewhere.task_queue) in said
    assert "within 1 s; start one that serves agent 'helper'" in said
    (ref,) = await apart.children(sid)
    assert ref.status == "failed"
    described = await apart.handle(ref.sub_session_id).describe()
    assert described.status is WorkflowExecutionStatus.TERMINATED


async def test_a_worker_that_comes_in_time_serves_the_call(apart: Apart, sid: str) -> None:
    """A deployment restarts its workers one after the other."""
    asked = asyncio.create_task(apart.sessions.ask(sid, "one", agent="patient", timeout=30))
    async with apart.specialists():
        assert (await asked).text == "1: one"


async def test_a_call_that_somebody_has_begun_with_may_take_its_time(apart: Apart, sid: str) -> None:
    """The limit is for a beginning; the answer has ``timeout``."""
    async with apart.specialists():
        asked = asyncio.create_task(apart.sessions.ask(sid, f"hold {sid}", agent="brisk", timeout=30))
        await asyncio.wait_for(apart.team.gates[sid].reached.wait(), 20)
        child = await apart.child(sid)
        async with asyncio.timeout(20):
            while not await looked_at(apart, sid):  # noqa: ASYNC110 (a history is looked at)
                await asyncio.sleep(0.05)
        assert (await apart.handle(child).describe()).status is WorkflowExecutionStatus.RUNNING
        apart.team.gates[sid].opened.set()
        assert (await asked).text == f"1: hold {sid}"


async def test_a_worker_that_does_not_know_the_agent_says_so(apart: Apart, sid: str) -> None:
    """Once other workers had their time to serve it."""
    async with apart.specialists():
        await apart.sessions.ask(sid, "one", agent="wrong", timeout=30)
    assert "agent 'who' is not known to the worker" in await told(apart, sid)


async def looked_at(apart: Apart, session_id: str) -> bool:
    """Whether the caller has looked for a worker, and got an answer."""
    events = await apart.events(session_id)
    names = {
        each.event_id: each.activity_task_scheduled_event_attributes.activity_type.name for each in events
    }
    return any(
        names.get(each.activity_task_completed_event_attributes.scheduled_event_id)
        == "helix.sessions.has_started"
        for each in events
        if each.HasField("activity_task_completed_event_attributes")
    )


async def test_every_attempt_says_alike_whether_anybody_has_begun(apart: Apart, sid: str) -> None:
    """The first one ended what nobody had begun with, and its answer was lost."""
    client = apart.served.client
    asks = ChildActivities(apart.served.plugin.backends.threads, AgentRegistry([]))
    environment = ActivityEnvironment(client=client)
    left = await client.start_workflow("nobody's", id=sid, task_queue=f"{sid}-nobody's")
    request = HasStartedInput(workflow_id=left.id, run_id=left.first_execution_run_id or "")
    told = [await environment.run(asks.has_started, request) for _ in range(2)]
    assert [each.has_started for each in told] == [False, False]
    assert (await left.describe()).status is WorkflowExecutionStatus.TERMINATED

    await apart.sessions.ask(f"{sid}-begun", "hello", agent="hasty")
    begun = apart.handle(f"{sid}-begun")
    run_id = (await begun.describe()).run_id
    request = HasStartedInput(workflow_id=begun.id, run_id=run_id or "")
    told = [await environment.run(asks.has_started, request) for _ in range(2)]
    assert [each.has_started for each in told] == [True, True]
    assert (await begun.describe()).status is WorkflowExecutionStatus.RUNNING
