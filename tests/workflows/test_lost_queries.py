"""What a session tells of itself is asked for again where the server lost the question."""

from typing import Any

import pytest
from temporalio.client import Client, Interceptor, OutboundInterceptor, QueryWorkflowInput
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal.client import SessionClient
from helix_temporal.errors import NoWorkerError, SessionNotFoundError
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Losing(Interceptor):
    """Loses so many queries, as a server does where a run ends under them."""

    def __init__(self, times: int, status: RPCStatusCode, said: str = "lost") -> None:
        self.left, self.status, self.said, self.asked = times, status, said, 0

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002 (the SDK's name)
        """Listen to queries."""
        losing = self

        class Listening(OutboundInterceptor):
            async def query_workflow(self, input: QueryWorkflowInput) -> Any:  # noqa: A002
                losing.asked += 1
                if losing.left:
                    losing.left -= 1
                    raise RPCError(losing.said, losing.status, b"")
                return await self.next.query_workflow(input)

        return Listening(next)


def sessions_of(stand: Stand, losing: Losing) -> SessionClient:
    """A client whose queries get lost."""
    config = stand.served.client.config()
    config["interceptors"] = [*config["interceptors"], losing]
    return SessionClient(Client(**config), task_queue=stand.served.plugin.settings.task_queue)


async def test_a_query_that_is_lost_is_made_again(stand: Stand, sid: str) -> None:
    """The next execution answers it, or the history of the one that ended."""
    sessions = sessions_of(stand, Losing(2, RPCStatusCode.DEADLINE_EXCEEDED))
    asked = await sessions.ask(sid, "hello", agent="main")
    assert (await sessions.status(sid)).turns == 1
    assert asked.in_thread


async def test_a_session_that_answers_no_query_is_told(stand: Stand, sid: str) -> None:
    """Nobody serves it: after three questions that is said."""
    losing = Losing(9, RPCStatusCode.UNAVAILABLE)
    with pytest.raises(RPCError, match="lost"):
        await sessions_of(stand, losing).status(sid)
    assert losing.asked == 3


async def test_that_no_worker_polls_is_taken_from_the_server(stand: Stand, sid: str) -> None:
    """It knows of polls that broke off before their age tells."""
    losing = Losing(9, RPCStatusCode.FAILED_PRECONDITION, "no poller seen for task queue recently")
    with pytest.raises(NoWorkerError, match="no poller seen"):
        await sessions_of(stand, losing).status(sid)
    assert losing.asked == 1


async def test_a_session_that_never_was_is_asked_once(stand: Stand, sid: str) -> None:
    """There is nothing to wait for."""
    losing = Losing(0, RPCStatusCode.OK)
    with pytest.raises(SessionNotFoundError):
        await sessions_of(stand, losing).status(sid)
    assert losing.asked == 1
