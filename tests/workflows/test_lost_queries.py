"""What a session tells of itself is asked for again where the question was lost, or a worker failed it."""

import asyncio
import uuid
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import (
    Client,
    Interceptor,
    OutboundInterceptor,
    QueryWorkflowInput,
    WorkflowQueryFailedError,
)
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from helix_temporal.agents import Agent, ScriptedModel
from helix_temporal.client import SessionClient, _updates
from helix_temporal.devstack import S3Endpoint
from helix_temporal.errors import NoWorkerError, SessionNotFoundError
from helix_temporal.testing.serving import session_worker
from tests.workflows.conftest import Stand, make_settings

pytestmark = pytest.mark.asyncio(loop_scope="session")


NOT_REPLAYED = "[TMPRL1100] Nondeterminism error: Update machine does not handle this event"
"""What a worker without the workflow in its cache says of a query beside an update, now and then."""


class Losing(Interceptor):
    """Loses so many queries, as a server does where a run ends under them; or a worker fails them."""

    def __init__(self, times: int, error: Exception) -> None:
        self.left, self.error, self.asked = times, error, 0

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002 (the SDK's name)
        """Listen to queries."""
        losing = self

        class Listening(OutboundInterceptor):
            async def query_workflow(self, input: QueryWorkflowInput) -> Any:  # noqa: A002
                losing.asked += 1
                if losing.left:
                    losing.left -= 1
                    raise losing.error
                return await self.next.query_workflow(input)

        return Listening(next)


def lost(status: RPCStatusCode, said: str = "lost") -> RPCError:
    return RPCError(said, status, b"")


def sessions_of(stand: Stand, losing: Losing) -> SessionClient:
    """A client whose queries get lost."""
    config = stand.served.client.config()
    config["interceptors"] = [*config["interceptors"], losing]
    return SessionClient(Client(**config), task_queue=stand.served.plugin.settings.task_queue)


async def test_a_query_that_is_lost_is_made_again(stand: Stand, sid: str) -> None:
    """The next execution answers it, or the history of the one that ended."""
    sessions = sessions_of(stand, Losing(2, lost(RPCStatusCode.DEADLINE_EXCEEDED)))
    asked = await sessions.ask(sid, "hello", agent="main")
    assert (await sessions.session(sid).get_status()).turns == 1
    assert asked.in_thread


async def test_a_query_that_a_worker_fails_is_made_again(stand: Stand, sid: str) -> None:
    """Another worker answers it, or the same one a moment later."""
    losing = Losing(0, WorkflowQueryFailedError(NOT_REPLAYED))
    sessions = sessions_of(stand, losing)
    await sessions.ask(sid, "hello", agent="main")
    losing.left = 2
    assert (await sessions.session(sid).get_status()).turns == 1
    losing.left = 2
    assert await sessions.session(sid).get_pending_calls() == ()
    losing.left = 2
    assert (await sessions.session(sid).wait_for_change(timeout=20)).turns == 1


async def test_queries_that_every_worker_fails_are_told_of(
    stand: Stand, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the pack's own error, with what was said."""
    monkeypatch.setattr(_updates, "_QUERY_SECONDS", 1.0)
    losing = Losing(0, WorkflowQueryFailedError(NOT_REPLAYED))
    sessions = sessions_of(stand, losing)
    await sessions.ask(sid, "hello", agent="main")
    losing.left = 1000
    with pytest.raises(NoWorkerError, match=r"no worker answered a query.*TMPRL1100"):
        await sessions.session(sid).get_status()
    with pytest.raises(TimeoutError, match="no result of 'wait_for_change' within 2 s"):
        await sessions.session(sid).wait_for_change(timeout=2)
    losing.left = 0
    await sessions.session(sid).close()
    await sessions.session(sid).result()
    losing.left = 1000
    assert sid in (await sessions.session(sid).delete()).sessions


@workflow.defn(name="other")
class Other:
    """What another program serves."""

    @workflow.run
    async def run(self) -> None:
        """Nothing."""


async def test_a_worker_that_serves_no_sessions_is_no_end_of_a_query(
    temporal_address: str, redis_url: str, s3: S3Endpoint, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It polls the same queue, and takes questions that it cannot answer."""
    settings = make_settings(temporal_address, redis_url, s3, f"t{uuid.uuid4().hex[:12]}")
    agents = [Agent(name="main", model=ScriptedModel(["Hello."]))]
    async with session_worker(settings, agents, drain=1.0) as served:
        assert (await served.sessions.ask(sid, "hello", agent="main", timeout=30)).text == "Hello."
        await served.sessions.session(sid).close()
        await served.sessions.session(sid).result()
        sessions, client = served.sessions, served.client
    plain = await Client.connect(client.service_client.config.target_host)
    runner = UnsandboxedWorkflowRunner()
    async with Worker(plain, task_queue=settings.task_queue, workflows=[Other], workflow_runner=runner):
        with pytest.raises(NoWorkerError, match="no worker answered a query"):
            await sessions.session(sid).get_status()
        # On a busy machine another worker is not there within the ten seconds of a query.
        monkeypatch.setattr(_updates, "_QUERY_SECONDS", 60.0)
        asked = asyncio.create_task(sessions.session(sid).get_status())
        async with session_worker(settings, agents, drain=1.0):
            assert (await asked).turns == 1


async def test_a_session_that_answers_no_query_is_told(stand: Stand, sid: str) -> None:
    """After three questions that is said."""
    losing = Losing(9, lost(RPCStatusCode.UNAVAILABLE))
    with pytest.raises(
        TimeoutError, match=r"server answered no query, 3 times \(the newest: UNAVAILABLE: lost"
    ):
        await sessions_of(stand, losing).session(sid).get_status()
    assert losing.asked == 3


async def test_that_no_worker_polls_is_taken_from_the_server(stand: Stand, sid: str) -> None:
    """It knows of polls that broke off before their age tells."""
    said = "no poller seen for task queue recently"
    losing = Losing(9, lost(RPCStatusCode.FAILED_PRECONDITION, said))
    with pytest.raises(NoWorkerError, match="no poller seen"):
        await sessions_of(stand, losing).session(sid).get_status()
    assert losing.asked == 1


async def test_a_session_that_never_was_is_asked_once(stand: Stand, sid: str) -> None:
    """There is nothing to wait for."""
    losing = Losing(0, lost(RPCStatusCode.OK))
    with pytest.raises(SessionNotFoundError):
        await sessions_of(stand, losing).session(sid).get_status()
    assert losing.asked == 1
