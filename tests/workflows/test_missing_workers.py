"""Nobody serves a session: errors name it, its task queue and namespace, and the queue that has workers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus

from helix_temporal.agents import Agent, ScriptedModel
from helix_temporal.client import SessionClient, _diagnosis
from helix_temporal.errors import NoWorkerError
from helix_temporal.models.states import SessionProperties
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings
from helix_temporal.testing.serving import session_worker
from tests.workflows._ways import Starts, give_up, listened_to, stand
from tests.workflows.conftest import Stand

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

__all__ = ["stand"]

Call = Callable[[SessionClient, str], Awaitable[Any]]

READS: dict[str, Call] = {
    "describe_thread": lambda s, i: s.session(i).describe_thread(),
    "find_turn": lambda s, i: s.session(i).find_turn("m"),
    "fork": lambda s, i: s.session(i).fork(f"{i}-2"),
    "get_checkpoint": lambda s, i: s.session(i).get_checkpoint("c"),
    "get_messages": lambda s, i: s.session(i).get_messages(),
    "get_run": lambda s, i: s.session(i).get_run("r"),
    "get_state": lambda s, i: s.session(i).get_state(),
    "get_usage": lambda s, i: s.session(i).get_usage(),
    "list_checkpoints": lambda s, i: s.session(i).list_checkpoints(),
    "list_children": lambda s, i: s.session(i).list_children(),
    "list_messages": lambda s, i: s.session(i).list_messages(),
    "list_turns": lambda s, i: s.session(i).list_turns(),
    "set_properties": lambda s, i: s.session(i).set_properties(SessionProperties(user_id="u")),
}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read is given up after a second without a worker."""
    monkeypatch.setattr(_diagnosis, "_UNSERVED", 1.0)
    monkeypatch.setattr(_diagnosis, "_UNSERVED_LOOK", 0.5)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("name", READS)
async def test_a_read_that_nobody_serves_names_session_queue_and_namespace(
    stand: Stand, sid: str, name: str
) -> None:
    """It named the short workflow that reads, which is nothing that its caller knows of."""
    nobody = SessionClient(stand.served.client, task_queue=f"{sid}-nobody")
    with pytest.raises(NoWorkerError) as caught:
        await READS[name](nobody, sid)
    said = f"session {sid!r}: no worker polls task queue '{sid}-nobody' in namespace 'default'"
    assert str(caught.value).startswith(said)


async def test_a_read_that_its_caller_gives_up_leaves_no_workflow(older_stand: Stand, sid: str) -> None:
    """A web page that asks again and again left one each time, and all of them ran once a worker came."""
    client, queue = older_stand.served.client, f"{sid}-nobody"
    for _ in range(3):
        starts = Starts()
        nobody = SessionClient(listened_to(client, starts), task_queue=queue)
        await give_up(nobody.session(sid).get_state(), starts.workflows)
    query = f"TaskQueue = '{queue}'"
    found: list[WorkflowExecutionStatus | None] = []
    async with asyncio.timeout(20):
        while found != [WorkflowExecutionStatus.TERMINATED] * 3:
            await asyncio.sleep(0.1)
            found = [each.status async for each in client.list_workflows(query)]


@pytest.mark.usefixtures("impatient")
async def test_a_list_of_sessions_that_nobody_serves_names_the_queue(stand: Stand, sid: str) -> None:
    """It is about no session."""
    nobody = SessionClient(stand.served.client, task_queue=f"{sid}-nobody")
    for call in (nobody.list_sessions, nobody.query_usage):
        with pytest.raises(NoWorkerError, match=f"^all sessions: no worker polls task queue '{sid}-nobody'"):
            await call()


@pytest.mark.usefixtures("patient_causes")
async def test_the_queue_of_the_clients_plugin_is_hinted_at(stand: Stand, sid: str) -> None:
    """Whoever names another queue to the client than to the plugin has mistyped one of them."""
    nobody = SessionClient(stand.served.client, task_queue=f"{sid}-nobody")
    with pytest.raises(TimeoutError) as caught:
        await nobody.ask(sid, "hello", agent="main", timeout=2)
    queue = stand.served.plugin.settings.task_queue
    assert f"workers poll task queue {queue!r} there" in str(caught.value)


@pytest.mark.usefixtures("patient_causes")
async def test_the_queue_on_which_the_deployments_sessions_ran_is_hinted_at(
    temporal_address: str, unique: str
) -> None:
    """The worker's queue is in its own settings alone: the server knows it by the sessions that ran."""
    settings = Settings(temporal_address=temporal_address, name=unique, task_queue=f"{unique}-theirs")
    agent = Agent(name="main", model=ScriptedModel(["hello"]))
    async with session_worker(settings, [agent], drain=1.0) as served:
        await served.sessions.ask("first", "hi", agent="main", timeout=30)
        query = f"TaskQueue = '{settings.task_queue}'"
        async with asyncio.timeout(20):
            while not [each async for each in served.client.list_workflows(query)]:  # noqa: ASYNC110 (a list lags)
                await asyncio.sleep(0.1)
        plugin = HelixPlugin(Settings(temporal_address=temporal_address, name=unique))
        lost = SessionClient(await Client.connect(temporal_address, plugins=[plugin]))
        with pytest.raises(TimeoutError) as caught:
            await lost.ask("second", "hi", agent="main", timeout=2)
    assert f"no worker polls task queue {unique!r}" in str(caught.value)
    assert f"workers poll task queue '{unique}-theirs' there" in str(caught.value)
