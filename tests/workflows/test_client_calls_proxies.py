"""Clients whose requests a proxy refuses or cuts off: what they call is done, told, or taken back."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal.client import SessionClient, _diagnosis, _task_queues, workflow_id
from helix_temporal.devstack import S3Endpoint
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.testing.serving import Served, session_worker
from tests.workflows._desk import Desk
from tests.workflows._proxy import Proxy, through_proxy
from tests.workflows._ways import activity_is_gone, address, give_up
from tests.workflows.conftest import Stand, make_settings
from tests.workflows.test_client_calls import Transforms
from tests.workflows.test_client_calls_servers import left_behind

pytestmark = pytest.mark.asyncio(loop_scope="session")

__all__ = ["address"]

CANCELLED, UNAVAILABLE = RPCStatusCode.CANCELLED, RPCStatusCode.UNAVAILABLE
DENIED = RPCStatusCode.PERMISSION_DENIED
START, POLL = "start_activity_execution", "poll_activity_execution"
POLLS = (POLL, "get_workflow_execution_history")
"""By which a client waits for what it called, in either way."""


def proxied(served: Served, queue: str | None = None) -> tuple[SessionClient, Proxy]:
    """A client of a worker, or of another task queue, behind a proxy of its own."""
    client, proxy = through_proxy(served.client)
    return SessionClient(client, task_queue=queue or served.plugin.settings.task_queue), proxy


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call is given up after a second without a worker."""
    monkeypatch.setattr(_diagnosis, "_UNSERVED", 0.6)
    monkeypatch.setattr(_diagnosis, "_UNSERVED_LOOK", 0.3)


@pytest.fixture
def transforms() -> Transforms:
    """Of the worker below."""
    return Transforms()


@pytest_asyncio.fixture(loop_scope="session")
async def served(
    address: str, redis_url: str, s3: S3Endpoint, transforms: Transforms
) -> AsyncIterator[Served]:
    """A worker of the test's own, on either server."""
    settings = make_settings(address, redis_url, s3, f"t{uuid.uuid4().hex[:12]}")
    plugin = {"transforms": {"waits": transforms.waits}}
    async with session_worker(settings, Desk().agents(), plugin=plugin, drain=1.0) as started:
        yield started


@pytest.fixture
def own() -> str:
    """A session of that worker."""
    return f"s-{uuid.uuid4().hex[:8]}"


# -- deletions


async def test_a_deletion_that_may_not_list_activities_deletes_histories_all_the_same(
    stand: Stand, sid: str
) -> None:
    """They have what was said; what it could not look for is told."""
    sessions, proxy = proxied(stand.served)
    proxy.refuse("list_activity_executions", DENIED)
    await sessions.ask(sid, "hello", agent="main")
    result = await sessions.session(sid).delete(settle=20)
    assert (result.removed["execution"], result.pending) == (1, ())
    (left,) = result.left
    assert (left.what, left.where) == ("executions", "standalone activities of the session's calls")
    assert "PERMISSION_DENIED" in left.why
    with pytest.raises(RPCError, match="not found"):
        await stand.handle(sid).describe()


async def test_a_deletion_that_may_not_list_workflows_deletes_the_run_that_it_knows(
    stand: Stand, sid: str
) -> None:
    """And the activities, which it may list."""
    sessions, proxy = proxied(stand.served)
    proxy.refuse("list_workflow_executions", DENIED)
    await sessions.ask(sid, "hello", agent="main")
    killed = f"helix-look/{sid}/left"
    left_over = await left_behind(stand.served.client, killed, sid, stand.served.plugin.settings.task_queue)
    await left_over.result()
    result = await sessions.session(sid).delete(settle=20)
    assert (result.removed["execution"], result.pending) == (1, ())
    assert [each.where for each in result.left] == ["all but the newest of the session's"]
    assert await activity_is_gone(stand.served.client, killed)
    with pytest.raises(RPCError, match="not found"):
        await stand.handle(sid).describe()


@pytest.mark.parametrize("refused", ["delete_activity_execution", "describe_activity_execution"])
async def test_a_deletion_that_may_not_delete_activities_names_them(
    stand: Stand, sid: str, refused: str
) -> None:
    """Each stays with its input until the retention ends; the histories are deleted."""
    sessions, proxy = proxied(stand.served)
    await sessions.ask(sid, "hello", agent="main")
    killed = f"helix-look/{sid}/left"
    left_over = await left_behind(stand.served.client, killed, sid, stand.served.plugin.settings.task_queue)
    await left_over.result()
    proxy.refuse(refused, DENIED)
    result = await sessions.session(sid).delete(settle=20)
    assert result.removed["execution"] == 1
    assert killed in " ".join(each.where for each in result.left)
    assert all("PERMISSION_DENIED" in each.why for each in result.left)
    with pytest.raises(RPCError, match="not found"):
        await stand.handle(sid).describe()
    await stand.sessions.session(sid).delete(settle=20)
    assert await activity_is_gone(stand.served.client, killed)


async def test_a_deletion_that_may_delete_nothing_at_the_server_empties_the_stores(
    stand: Stand, sid: str
) -> None:
    """It says so once, and not for each execution."""
    sessions, proxy = proxied(stand.served)
    await sessions.ask(sid, "hello", agent="main")
    proxy.refuse("delete_workflow_execution", DENIED)
    result = await sessions.session(sid).delete()
    assert result.removed["thread"] == 1
    assert "execution" not in result.removed
    (left,) = result.left
    assert workflow_id(sid) in left.where


# -- polls that are cut off


@pytest.mark.parametrize("status", [CANCELLED, UNAVAILABLE])
async def test_a_wait_that_a_proxy_cuts_off_goes_on(
    served: Served, transforms: Transforms, own: str, status: RPCStatusCode
) -> None:
    """It looked like a cancel of the caller's own, and ended the fork."""
    sessions, proxy = proxied(served)
    await sessions.ask(own, "hello", agent="main")
    for each in POLLS:
        proxy.refuse(each, status, times=3)
    forking = asyncio.create_task(sessions.session(own).fork(f"{own}-2", transform="waits"))
    await transforms.gate.reached.wait()
    await asyncio.wait([forking], timeout=1)
    assert not forking.done()
    transforms.gate.opened.set()
    assert (await forking).position == 2
    assert len([each for each in proxy.asked if each in POLLS]) >= 4


async def test_a_wait_that_is_cut_off_within_a_deadline_goes_on(stand: Stand, sid: str) -> None:
    """The text of a long message is one call within an `ask`, which waits in the caller's own task."""
    sessions, proxy = proxied(stand.served)
    proxy.refuse(POLL, CANCELLED, times=3)
    assert (await sessions.ask(sid, "long " * 4000, agent="main", timeout=30)).status == "answered"


async def test_a_wait_that_is_always_cut_off_ends_with_its_callers_patience(stand: Stand, sid: str) -> None:
    """A cancel of the caller's own is one, whatever the proxy does; nothing is left."""
    sessions, proxy = proxied(stand.served, f"{sid}-nobody")
    started = starts_of(proxy)
    proxy.refuse(POLL, CANCELLED)
    await give_up(sessions.session(sid).get_state(), started)
    (name,) = started
    assert await activity_is_gone(stand.served.client, name)


@pytest.mark.parametrize("status", [CANCELLED, UNAVAILABLE])
async def test_a_wait_for_a_sessions_end_goes_on(stand: Stand, sid: str, status: RPCStatusCode) -> None:
    """It may take hours, and a proxy cuts off what takes a minute."""
    sessions, proxy = proxied(stand.served)
    await sessions.ask(sid, "hello", agent="main")
    proxy.refuse("get_workflow_execution_history", status, times=3)
    ending = asyncio.create_task(sessions.session(sid).result())
    await asyncio.wait([ending], timeout=1)
    assert not ending.done()
    await sessions.session(sid).close()
    assert (await ending).turns == 1


async def test_an_outage_is_told_after_a_while(
    stand: Stand, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads have no time-out of their own."""
    monkeypatch.setattr("helix_temporal.client._updates._OUTAGE", 1.0)
    sessions, proxy = proxied(stand.served, f"{sid}-nobody")
    proxy.refuse(POLL, UNAVAILABLE)
    with pytest.raises(RPCError) as told:
        await asyncio.wait_for(sessions.session(sid).get_state(), 10)
    assert told.value.status is UNAVAILABLE


async def test_what_else_ends_a_wait_leaves_nothing_at_the_server(stand: Stand, sid: str) -> None:
    """It would run once a worker comes."""
    sessions, proxy = proxied(stand.served, f"{sid}-nobody")
    started = starts_of(proxy)
    proxy.refuse(POLL, RPCStatusCode.INTERNAL)
    with pytest.raises(RPCError):
        await sessions.session(sid).get_state()
    (name,) = started
    assert await activity_is_gone(stand.served.client, name)


async def test_who_may_start_activities_and_not_ask_for_results_has_workflows(stand: Stand, sid: str) -> None:
    """For reads. Of a change nobody knows what became of it, and the next one is a workflow."""
    sessions, proxy = proxied(stand.served)
    await stand.sessions.ask(sid, "hello", agent="main")
    proxy.refuse(POLL, DENIED)
    with pytest.raises(StoreUnavailableError, match="PERMISSION_DENIED"):
        await sessions.session(sid).fork(f"{sid}-2")
    assert (await sessions.session(sid).fork(f"{sid}-3")).position == 2
    others, proxy = proxied(stand.served)
    proxy.refuse(POLL, DENIED)
    for _ in range(2):
        assert len(await others.session(sid).get_messages()) == 2
    assert proxy.asked.count(START) == 1


# -- starts


def starts_of(proxy: Proxy) -> list[str]:
    """Ids of what is started through a proxy, as it comes; of workflows as well."""
    found: list[str] = []

    async def note(request: Any) -> None:
        found.append(getattr(request, "activity_id", None) or request.workflow_id)

    for each in (START, "start_workflow_execution"):
        proxy.intercept(each, note)
    return found


async def never(_: Any) -> None:
    """The answer does not come."""
    await asyncio.Event().wait()


async def unavailable(_: Any) -> RPCStatusCode:
    """The answer gets lost."""
    return UNAVAILABLE


async def test_a_start_whose_caller_gives_up_is_taken_back(stand: Stand, sid: str) -> None:
    """The server has accepted it, and its answer is on its way."""
    sessions, proxy = proxied(stand.served, f"{sid}-nobody")
    started = starts_of(proxy)
    proxy.lose(START, never)
    await give_up(sessions.session(sid).get_state(), started)
    (name,) = started
    assert await activity_is_gone(stand.served.client, name)


async def test_a_workflow_whose_caller_gives_up_while_it_starts_is_ended(
    older_stand: Stand, sid: str
) -> None:
    """On a server without standalone activities."""
    sessions, proxy = proxied(older_stand.served, f"{sid}-nobody")
    started = starts_of(proxy)
    accepted = list[object]()

    async def untold(request: object) -> None:
        accepted.append(request)
        await never(request)

    proxy.lose("start_workflow_execution", untold)
    await give_up(sessions.session(sid).get_state(), accepted)
    found = await older_stand.served.client.get_workflow_handle(started[-1]).describe()
    assert found.status is WorkflowExecutionStatus.TERMINATED


async def test_a_start_whose_answer_is_lost_is_taken_back(stand: Stand, sid: str) -> None:
    """Who repeats the call would have two of it."""
    sessions, proxy = proxied(stand.served, f"{sid}-nobody")
    started = starts_of(proxy)
    proxy.lose(START, unavailable)
    with pytest.raises(RPCError):
        await sessions.session(sid).get_state()
    (name,) = started
    assert await activity_is_gone(stand.served.client, name)


# -- workers that cannot be looked for


@pytest.mark.usefixtures("impatient")
async def test_who_may_not_look_for_workers_has_the_result(
    served: Served, transforms: Transforms, own: str
) -> None:
    """A refused look says nothing of the workers: the fork that ran was taken for one without any."""
    sessions, proxy = proxied(served)
    proxy.refuse("describe_task_queue", DENIED)
    await sessions.ask(own, "hello", agent="main")
    forking = asyncio.create_task(sessions.session(own).fork(f"{own}-2", transform="waits"))
    await transforms.gate.reached.wait()
    await asyncio.wait([forking], timeout=3)
    assert not forking.done()
    transforms.gate.opened.set()
    assert (await forking).position == 2


async def test_workers_that_may_not_be_looked_for_are_not_said_to_be_missing(stand: Stand, sid: str) -> None:
    """Neither where a session was never started, nor in the log."""
    sessions, proxy = proxied(stand.served, f"{sid}-nobody")
    proxy.refuse("describe_task_queue", DENIED)
    with pytest.raises(TimeoutError) as told:
        await sessions.ask(sid, "hello", agent="main", timeout=3)
    assert "no worker" not in str(told.value)


@pytest.mark.usefixtures("impatient")
async def test_a_call_that_has_a_worker_is_never_unserved(
    served: Served, transforms: Transforms, own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is to stop asks for no more work, and ends what it has."""
    for module in (_diagnosis, _task_queues):
        monkeypatch.setattr(module, "seconds_since_poll", lambda _: 100.0)
    sessions, _ = proxied(served)
    await sessions.ask(own, "hello", agent="main")
    forking = asyncio.create_task(sessions.session(own).fork(f"{own}-2", transform="waits"))
    await transforms.gate.reached.wait()
    await asyncio.wait([forking], timeout=3)
    assert not forking.done()
    transforms.gate.opened.set()
    assert (await forking).position == 2
