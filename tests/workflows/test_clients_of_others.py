"""Clients with interceptors, plugins and defaults of their own, under `SessionClient`."""

import uuid
from typing import Any

import pytest
from temporalio.client import (
    Client,
    ClientConfig,
    Interceptor,
    OutboundInterceptor,
    StartWorkflowUpdateWithStartInput,
    WorkflowUpdateHandle,
)
from temporalio.common import QueryRejectCondition
from temporalio.plugin import SimplePlugin

from helix_temporal.client import SessionClient
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Refusing(Interceptor):
    """Lets nobody start a session."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002 (the SDK's)
        """As the SDK calls it."""
        return _Refuses(next)


class _Refuses(OutboundInterceptor):
    async def start_update_with_start_workflow(
        self,
        input: StartWorkflowUpdateWithStartInput,  # noqa: A002 (the SDK's)
    ) -> WorkflowUpdateHandle[Any]:
        raise PermissionError("not on Sundays")


class CountingPlugin(SimplePlugin):
    """Permits one client."""

    def __init__(self) -> None:
        super().__init__("tests.counting")
        self.clients = 0

    def configure_client(self, config: ClientConfig) -> ClientConfig:
        """As the SDK calls it, once for each client."""
        self.clients += 1
        return super().configure_client(config)


def sessions_of(stand: Stand, **own: Any) -> SessionClient:
    """Sessions of the stand, by a client that somebody else made."""
    config: dict[str, Any] = {**stand.served.client.config(), **own}
    client = Client(**config)
    return SessionClient(client, task_queue=stand.served.plugin.settings.task_queue)


@pytest.mark.parametrize("method", ["ask", "send"])
async def test_what_an_interceptor_raises_at_a_first_message_is_told(stand: Stand, method: str) -> None:
    """The call hung for its whole time-out, and then said that there is no run."""
    sessions = sessions_of(stand, interceptors=[Refusing()])
    with pytest.raises(PermissionError, match="not on Sundays"):
        await getattr(sessions, method)(f"s-{uuid.uuid4().hex[:8]}", "hello", agent="main", timeout=20)


async def test_a_client_that_queries_open_workflows_alone_reads_a_session_that_has_ended(
    stand: Stand, sid: str
) -> None:
    """It is the client's default for workflows of its own."""
    await stand.sessions.ask(sid, "hello", agent="main")
    await stand.finish(sid)
    sessions = sessions_of(stand, default_workflow_query_reject_condition=QueryRejectCondition.NOT_OPEN)
    assert (await sessions.session(sid).get_status()).waiting == 0


async def test_plugins_of_a_client_are_asked_once(stand: Stand, sid: str) -> None:
    """Each session client asked them anew: one that permits one client refused it."""
    counting = CountingPlugin()
    config: dict[str, Any] = {**stand.served.client.config()}
    client = Client(**{**config, "plugins": [*config["plugins"], counting]})
    queue = stand.served.plugin.settings.task_queue
    _, _, sessions = (SessionClient(client, task_queue=queue) for _ in range(3))
    assert (await sessions.ask(sid, "hello", agent="main")).text == "1: hello"
    assert counting.clients == 1
