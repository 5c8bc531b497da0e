"""A roll-out half done: one worker of two on the task queue lacks what the session needs."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta

import pytest
import pytest_asyncio

from helix_temporal.client import SessionClient
from helix_temporal.devstack import S3Endpoint
from helix_temporal.errors import AgentNotServedError, SessionNotFoundError
from helix_temporal.models.sessions import AskResult, AskStatus, SessionOptions
from helix_temporal.models.waiting import ToolApproval
from helix_temporal.settings import Settings
from helix_temporal.worker import connect
from tests.workflows._roll_out import worker_processes
from tests.workflows.conftest import TIMEOUTS, make_settings

pytestmark = pytest.mark.slow

SESSIONS = 10
PATIENT = TIMEOUTS.model_copy(update={"roll_out": timedelta(minutes=10)})


@dataclass(frozen=True)
class Deployment:
    """Workers of some versions, and a client of theirs."""

    settings: Settings
    sessions: SessionClient

    async def ask_all(self, agent: str) -> list[AskResult]:
        """One ask to each of so many new sessions."""
        ids = [f"{agent}-{self.settings.task_queue}-{number}" for number in range(SESSIONS)]
        asks = (self.sessions.ask(each, "hello", agent=agent, timeout=120) for each in ids)
        return await asyncio.gather(*asks)


async def deployment(settings: Settings, *, idle: float = 5) -> Deployment:
    """A client of workers that run elsewhere."""
    client, _ = await connect(settings)
    options = SessionOptions(idle_timeout=idle)
    return Deployment(settings, SessionClient(client, task_queue=settings.task_queue, options=options))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def half_done(temporal_address: str, redis_url: str, s3: S3Endpoint) -> AsyncIterator[Deployment]:
    """One old and one new worker."""
    settings = make_settings(temporal_address, redis_url, s3, f"t{uuid.uuid4().hex[:12]}", timeouts=PATIENT)
    async with worker_processes(settings, ("old", "new")):
        yield await deployment(settings)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def old_only(temporal_address: str, redis_url: str, s3: S3Endpoint) -> AsyncIterator[Deployment]:
    """One old worker, which gives a roll-out 8 seconds."""
    timeouts = TIMEOUTS.model_copy(update={"roll_out": timedelta(seconds=8)})
    settings = make_settings(temporal_address, redis_url, s3, f"t{uuid.uuid4().hex[:12]}", timeouts=timeouts)
    async with worker_processes(settings, ("old",)):
        yield await deployment(settings)


@pytest.mark.parametrize(
    ("agent", "texts"),
    [
        ("added", {"plain: hello"}),
        ("tooled", {"plain: hello", "told: found"}),
        ("paying", {"plain: hello", "told: paid"}),
        ("hooked", {"plain: hello", "plain: hello!"}),
        ("leader", {"plain: hello", "told: plain: hello"}),
    ],
)
async def test_every_session_is_answered_while_one_of_two_workers_lacks_something(
    half_done: Deployment, agent: str, texts: set[str]
) -> None:
    """An agent, a tool, one that may be tried once, a hook, a sub-agent: a deployment fails nobody."""
    results = await half_done.ask_all(agent)
    assert [each.status for each in results] == [AskStatus.ANSWERED] * SESSIONS
    assert {each.text for each in results} <= texts


async def test_a_fork_finds_the_worker_that_has_its_transform(half_done: Deployment) -> None:
    """A transform is a part of the new version, too."""
    source = f"source-{uuid.uuid4().hex[:8]}"
    await half_done.sessions.ask(source, "hello", agent="added", timeout=60)
    heads = [
        (await half_done.sessions.session(source).fork(f"{source}-{number}", transform="shout")).position
        for number in range(10)
    ]
    assert heads == [2] * 10


async def test_an_agent_that_no_worker_knows_fails_after_the_bounded_time(old_only: Deployment) -> None:
    """A misspelt name is told by the status at once, and fails by its own error in the end."""
    asked = asyncio.create_task(old_only.sessions.ask("typo-1", "hello", agent="typo", timeout=60))
    sent = asyncio.create_task(old_only.sessions.send("typo-1", "hello", agent="typo"))
    async with asyncio.timeout(30):
        while not (info := await seen(old_only.sessions, "typo-1")):  # noqa: ASYNC110 (a status is asked for)
            await asyncio.sleep(0.1)
    assert "AgentNotServedError: agent 'typo'" in info
    assert "hooked, leader, manager, paying, signing, tooled" in info
    assert "old-worker" in info
    result = await asked
    assert result.status is AskStatus.FAILED
    assert result.error is not None
    assert result.error.startswith("AgentNotServedError: agent 'typo'")
    assert "Start workers that serve the agent" in result.error
    with pytest.raises(AgentNotServedError, match="agent 'typo'"):
        await sent


@pytest.mark.usefixtures("patient_causes")
async def test_the_time_out_of_an_ask_names_the_missing_agent(old_only: Deployment) -> None:
    """Whoever waits a moment only learns as much."""
    sent = asyncio.create_task(old_only.sessions.send("typo-2", "hello", agent="typo"))
    async with asyncio.timeout(30):
        while not await seen(old_only.sessions, "typo-2"):  # noqa: ASYNC110 (a status is asked for)
            await asyncio.sleep(0.1)
    with pytest.raises(TimeoutError) as caught:
        await old_only.sessions.ask("typo-2", "hello again", agent="typo", timeout=1)
    sent.cancel()
    await asyncio.gather(sent, return_exceptions=True)
    assert "AgentNotServedError: agent 'typo'" in str(caught.value)
    assert "old-worker" in str(caught.value)


async def test_a_tool_that_came_after_the_session_was_opened_is_run(
    temporal_address: str, redis_url: str, s3: S3Endpoint, unique: str
) -> None:
    """The session goes on under the new version, whose model is offered more than the open knew of."""
    settings = make_settings(temporal_address, redis_url, s3, unique, timeouts=PATIENT)
    sessions = (await deployment(settings, idle=120)).sessions
    async with worker_processes(settings, ("old",)):
        assert (await sessions.ask(unique, "one", agent="tooled", timeout=60)).text == "plain: one"
    async with worker_processes(settings, ("new",)):
        assert (await sessions.ask(unique, "two", timeout=60)).text == "told: found"


async def test_a_sub_agent_that_came_after_the_session_was_opened_may_wait_for_people(
    temporal_address: str, redis_url: str, s3: S3Endpoint, unique: str
) -> None:
    """The open knew of no sub-agent, so that nothing of the step seemed to be able to wait."""
    settings = make_settings(temporal_address, redis_url, s3, unique, timeouts=PATIENT)
    sessions = (await deployment(settings, idle=120)).sessions
    async with worker_processes(settings, ("old",)):
        assert (await sessions.ask(unique, "one", agent="manager", timeout=60)).text == "plain: one"
    async with worker_processes(settings, ("new",)):
        suspended = await sessions.ask(unique, "two", timeout=60)
        assert (suspended.status, suspended.error) == (AskStatus.SUSPENDED, None)
        approval = ToolApproval(approval_id=suspended.pending[0].id, approved=True)
        reply = await sessions.session(unique).submit_approval(approval, wait=True, timeout=60)
    assert reply.result is not None
    assert reply.result.text == "told: told: signed"


async def test_a_step_that_stands_keeps_a_tool_that_the_worker_which_finds_it_lacks(
    temporal_address: str, redis_url: str, s3: S3Endpoint, unique: str
) -> None:
    """The new worker that made the step died; the model has asked for a tool that it was offered."""
    settings = make_settings(temporal_address, redis_url, s3, unique, timeouts=PATIENT)
    sessions = (await deployment(settings, idle=120)).sessions
    async with worker_processes(settings, ("old",)):
        assert (await sessions.ask(unique, "one", agent="tooled", timeout=60)).text == "plain: one"
    async with worker_processes(settings, ("dying",)) as (dying,):
        asked = asyncio.create_task(sessions.ask(unique, "two", timeout=90))
        await asyncio.to_thread(dying.join, 60)
    async with worker_processes(settings, ("old",)):
        async with asyncio.timeout(60):
            while not (info := await seen(sessions, unique)):  # noqa: ASYNC110 (a status is asked for)
                await asyncio.sleep(0.1)
        assert "NotServedError: tool 'look_up' of agent 'tooled'" in info
        async with worker_processes(settings, ("new",)):
            assert (await asked).text == "told: found"


async def test_a_tool_that_may_be_tried_once_waits_for_a_worker_that_has_it(
    temporal_address: str, redis_url: str, s3: S3Endpoint, unique: str
) -> None:
    """A worker without it has run nothing: its one attempt is left; the status says what is missing where."""
    settings = make_settings(temporal_address, redis_url, s3, unique, timeouts=PATIENT)
    sessions = (await deployment(settings, idle=120)).sessions
    async with worker_processes(settings, ("new",)):
        suspended = await sessions.ask(unique, "one", agent="signing", timeout=60)
        assert suspended.status is AskStatus.SUSPENDED
    async with worker_processes(settings, ("old",)):
        approval = ToolApproval(approval_id=suspended.pending[0].id, approved=True)
        replied = asyncio.create_task(
            sessions.session(unique).submit_approval(approval, wait=True, timeout=90)
        )
        async with asyncio.timeout(60):
            while not (info := await seen(sessions, unique)):  # noqa: ASYNC110 (a status is asked for)
                await asyncio.sleep(0.1)
        assert "NotServedError: tool 'sign' of agent 'signing'" in info
        assert "old-worker" in info
        async with worker_processes(settings, ("new",)):
            reply = await replied
    assert reply.result is not None
    assert reply.result.text == "told: signed"


async def seen(sessions: SessionClient, session_id: str) -> str:
    """What the session's status says of calls that fail; nothing before it runs."""
    try:
        info = await sessions.session(session_id).get_status()
    except SessionNotFoundError:
        return ""
    return " ".join(f"{each.error} {each.worker}" for each in info.failing)
