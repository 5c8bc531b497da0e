"""What is left of a client's calls at the server, and servers that gain or lose standalone activities."""

import asyncio
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import ActivityExecutionStatus
from temporalio.client import (
    ActivityHandle,
    Client,
    Interceptor,
    OutboundInterceptor,
    StartActivityInput,
    WorkflowHandle,
)
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal._deployments import speaking_for
from helix_temporal.activities import ThreadActivities
from helix_temporal.client import SessionClient, _short_calls
from helix_temporal.devstack import S3Endpoint, temporal
from helix_temporal.devstack.programs import free_port
from helix_temporal.devstack.servers import LocalServer, ServerPlace, open_place
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.models.deployments import Deployment
from helix_temporal.models.sessions import AskStatus
from helix_temporal.models.threads import ThreadInput
from helix_temporal.testing.serving import session_worker
from helix_temporal.workflows import LookRequest, LookWorkflow
from helix_temporal.workflows.calls import call_options
from tests._services import stack_environment
from tests.workflows._desk import Desk
from tests.workflows._ways import (
    CALLS,
    LONG,
    WORD,
    Starts,
    activity_exists,
    activity_is_gone,
    client_of,
    give_up,
    listened_to,
)
from tests.workflows.conftest import WITHOUT_ACTIVITIES, Stand, make_settings

pytestmark = pytest.mark.asyncio(loop_scope="session")

DESCRIBE: Any = ThreadActivities.describe


async def call_all(sessions: SessionClient, session_id: str) -> None:
    """Every call that a client has workers do."""
    await sessions.ask(session_id, "hello", agent="main", message_id="m")
    for call, is_expected in CALLS.values():
        assert is_expected(await call(sessions, session_id))


async def workflows_about(client: Client, session_id: str) -> list[str]:
    """Ids of short workflows, as the server lists them."""
    prefixes = [f"helix-{kind}/{session_id}" for kind in ("look", "thread")]
    query = " OR ".join(f"WorkflowId STARTS_WITH '{each}'" for each in prefixes)
    return [each.id async for each in client.list_workflows(query)]


async def test_where_the_server_has_activities_no_workflow_is_started(stand: Stand, sid: str) -> None:
    """It would keep what was said in its history until the retention ends; the server itself is counted."""
    starts = Starts()
    await call_all(client_of(stand, starts), sid)
    assert len(starts.activities) > len(CALLS)
    client, marker = stand.served.client, f"helix-look/{sid}/marker"
    request = LookRequest(describe=ThreadInput(thread_id=sid))
    queue = stand.served.plugin.settings.task_queue
    await client.start_workflow(LookWorkflow.run, request, id=marker, task_queue=queue)
    # The server's lists lag behind: whoever sees the last start sees those before it.
    async with asyncio.timeout(20):
        while not (found := await workflows_about(client, sid)):  # noqa: ASYNC110 (a server tells)
            await asyncio.sleep(0.1)
    assert found == [marker]


async def test_a_server_without_activities_is_asked_once(older_stand: Stand, sid: str) -> None:
    """Its refusal costs one request, not one before each read."""
    starts = Starts()
    await call_all(client_of(older_stand, starts), sid)
    assert (starts.activities, starts.refused) == ([], [RPCStatusCode.UNIMPLEMENTED])
    short = [each for each in starts.workflows if each.startswith(("helix-look/", "helix-thread/"))]
    assert len(short) > len(CALLS)


async def test_nothing_of_a_call_is_left_at_the_server(stand: Stand, sid: str) -> None:
    """Its input and result have texts, and the server would keep them until the retention ends."""
    seen: dict[str, bool] = {}

    async def see(handle: ActivityHandle[Any] | WorkflowHandle[Any, Any]) -> None:
        if isinstance(handle, ActivityHandle):
            seen[handle.id] = await activity_exists(stand.served.client, handle.id)

    sessions = client_of(stand, Starts(see))
    result = await sessions.ask(sid, LONG, agent="main")
    assert result.status is AskStatus.ANSWERED
    assert WORD in (await sessions.session(sid).get_messages())[0].text
    assert len(seen) >= 2
    assert all(seen.values())
    left = [each for each in seen if not await activity_is_gone(stand.served.client, each)]
    assert left == []


async def test_a_call_that_its_caller_gives_up_is_not_left_either(stand: Stand, sid: str) -> None:
    """It would run once a worker comes."""
    starts = Starts()
    client = listened_to(stand.served.client, starts)
    nobody = SessionClient(client, task_queue=f"{sid}-nobody").session(sid)
    await give_up(nobody.get_state(), starts.activities)
    (started,) = starts.activities
    assert await activity_is_gone(stand.served.client, started)


async def left_behind(client: Client, activity_id: str, session_id: str, queue: str) -> ActivityHandle[Any]:
    """An activity whose client was killed before it had the result."""
    given = ThreadInput(thread_id=session_id)
    options: Any = call_options(DESCRIBE)
    return await client.start_activity_method(DESCRIBE, given, id=activity_id, task_queue=queue, **options)


async def test_a_deletion_takes_what_killed_clients_left(stand: Stand, sid: str) -> None:
    """Activities of the session, and of no other session or deployment."""
    client, queue = stand.served.client, stand.served.plugin.settings.task_queue
    await stand.sessions.ask(sid, "hello", agent="main")
    own = await left_behind(client, f"helix-look/{sid}/left", sid, queue)
    await own.result()
    other = await left_behind(client, f"helix-look/{sid}-2/left", sid, queue)
    await other.result()
    stranger = speaking_for(client, Deployment("helix", (("redis", "01234567"),)))
    foreign = await left_behind(stranger, f"helix-look/{sid}/foreign", sid, f"{sid}-nobody")
    result = await stand.sessions.session(sid).delete(settle=20)
    assert result.complete
    assert await activity_is_gone(client, own.id)
    assert await activity_exists(client, other.id)
    found = await foreign.describe()
    assert found.raw_info.status == ActivityExecutionStatus.ACTIVITY_EXECUTION_STATUS_RUNNING
    await foreign.terminate()


class Refuses(Interceptor):
    """Answers starts of activities as a server that keeps them from this client."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002 (the SDK's name)
        """Refuse starts."""

        class Refusing(OutboundInterceptor):
            async def start_activity(self, input: StartActivityInput) -> ActivityHandle[Any]:  # noqa: A002
                raise RPCError(f"{input.id}: not allowed", RPCStatusCode.PERMISSION_DENIED, b"")

        return Refusing(next)


async def test_who_may_not_start_activities_has_workflows(stand: Stand, sid: str) -> None:
    """Rights are given by the name of the request; those of workflows were enough before."""
    starts = Starts()
    await call_all(client_of(stand, starts, Refuses()), sid)
    assert starts.refused == [RPCStatusCode.PERMISSION_DENIED]
    assert len(starts.workflows) > len(CALLS)


class Server:
    """A Temporal server that keeps its data, with standalone activities or without them."""

    def __init__(self, place: ServerPlace) -> None:
        self._place, self._port = place, free_port()
        self._running: LocalServer | None = None

    def start(self, *, with_activities: bool) -> str:
        """Start it, or what took its place after an upgrade or a downgrade; its address."""
        if self._running is not None:
            self._running.stop()
        extra = [] if with_activities else [WITHOUT_ACTIVITIES]
        endpoint, self._running = temporal.start_local_server(self._place, port=self._port, extra=extra)
        return endpoint.address


@contextmanager
def own_server(directory: Path) -> Iterator[Server]:
    """Stopped at the end."""
    with open_place(directory, stack_environment(os.environ)) as place:
        yield Server(place)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Of the test's own."""
    with own_server(tmp_path) as made:
        yield made


@pytest.mark.slow
async def test_a_living_client_follows_the_servers_version(
    server: Server, redis_url: str, s3: S3Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade is used without a restart, and a downgrade breaks no call."""
    monkeypatch.setattr(_short_calls, "_TRY_AGAIN", 0.0)
    settings = make_settings(
        await asyncio.to_thread(server.start, with_activities=False),
        redis_url,
        s3,
        f"t{uuid.uuid4().hex[:12]}",
    )
    async with session_worker(settings, Desk().agents(), drain=1.0) as served:
        starts = Starts()
        sessions = SessionClient(listened_to(served.client, starts), task_queue=settings.task_queue)
        await sessions.ask("s", "hello", agent="main")
        assert len(await sessions.session("s").get_messages()) == 2
        assert starts.activities == []
        await asyncio.to_thread(server.start, with_activities=True)
        assert len(await sessions.session("s").get_messages()) == 2
        assert len(starts.activities) == 1
        await asyncio.to_thread(server.start, with_activities=False)
        assert len(await sessions.session("s").get_messages()) == 2
        assert len(starts.activities) == 1


@pytest.mark.slow
async def test_a_call_under_way_at_a_downgrade_is_read_again_or_told(
    server: Server, redis_url: str, s3: S3Endpoint
) -> None:
    """Of a change nobody knows what became of it: it is not made a second time by another way."""
    settings = make_settings(
        await asyncio.to_thread(server.start, with_activities=True),
        redis_url,
        s3,
        f"t{uuid.uuid4().hex[:12]}",
    )
    starts = Starts()
    async with session_worker(settings, Desk().agents(), drain=1.0) as served:
        await served.sessions.ask("s", "hello", agent="main")
        client = listened_to(served.client, starts)
        await served.sessions.session("s").close()
        await served.sessions.session("s").result()
    sessions = SessionClient(client, task_queue=settings.task_queue)
    reading = asyncio.create_task(sessions.session("s").get_messages())
    forking = asyncio.create_task(sessions.session("s").fork("s-2"))
    async with asyncio.timeout(20):
        while len(starts.activities) < 2:  # noqa: ASYNC110 (an interceptor tells)
            await asyncio.sleep(0.05)
    await asyncio.to_thread(server.start, with_activities=False)
    async with session_worker(settings, Desk().agents(), drain=1.0):
        assert len(await reading) == 2
        with pytest.raises(StoreUnavailableError, match="session 's': the server no longer has"):
            await forking
        assert [each for each in starts.workflows if each.startswith("helix-thread/")] == []
