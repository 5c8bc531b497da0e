"""Several deployments in one Temporal namespace: none serves, reads or changes what is another's."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from temporalio.client import Client

from helix_temporal.client import SessionClient, workflow_id
from helix_temporal.devstack import S3Endpoint
from helix_temporal.errors import ForeignDeploymentError
from helix_temporal.facade import create_session
from helix_temporal.maintenance import ensure_schedules, remove_schedules
from helix_temporal.models.maintenance import CleanupInput
from helix_temporal.models.sessions import AskResult, SessionOptions, Status
from helix_temporal.models.states import SessionProperties
from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.models.waiting import WakeInput
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings
from helix_temporal.testing.serving import Served, session_worker
from helix_temporal.workflows import CleanupWorkflow, WakeWorkflow
from tests._resets import reset_workflow
from tests.workflows._desk import Desk
from tests.workflows._team import HURRIED, Team
from tests.workflows.conftest import make_settings

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

OPTIONS = SessionOptions(idle_timeout=60)
SECONDS = 60.0

Make = Callable[..., Settings]
Request = Callable[[SessionClient, str], Awaitable[object]]


@pytest.fixture
def make(temporal_address: str, redis_url: str, s3: S3Endpoint) -> Make:
    """Settings with queue and prefixes of their own, as the test changes them."""

    def made(**changes: Any) -> Settings:
        return make_settings(temporal_address, redis_url, s3, f"t{uuid.uuid4().hex[:12]}", **changes)

    return made


@pytest.fixture
def named(temporal_address: str, redis_url: str, s3: S3Endpoint) -> Make:
    """Settings that differ in the deployment's name and in nothing else."""

    def made(**changes: Any) -> Settings:
        name = f"d-{uuid.uuid4().hex[:8]}"
        alone: dict[str, Any] = dict(make_settings(temporal_address, redis_url, s3, name))
        for follows in ("task_queue", "redis_prefix", "table_prefix", "s3_prefix"):
            del alone[follows]
        alone["name"] = name
        return Settings(**(alone | changes))

    return made


@pytest.fixture
def sid() -> str:
    return f"s-{uuid.uuid4().hex[:8]}"


@asynccontextmanager
async def deployment(settings: Settings, says: str, **worker: Any) -> AsyncIterator[Served]:
    """A worker whose agent answers with the same text whatever is asked."""
    desk = Desk()
    desk.default = lambda _: says
    async with session_worker(settings, desk.agents(), options=OPTIONS, drain=1.0, **worker) as served:
        yield served


async def ask(client: SessionClient, session_id: str) -> AskResult:
    return await client.ask(session_id, "hello", agent="main", timeout=SECONDS)


async def bare(settings: Settings, **options: Any) -> SessionClient:
    """A client that names no stores, as a web application may."""
    client = await Client.connect(settings.temporal_address, plugins=[HelixPlugin()])
    return SessionClient(client, options=OPTIONS, **options)


async def test_a_session_of_another_deployment_is_refused(make: Make, sid: str) -> None:
    """Own queue and own stores, but the same namespace and name: nobody is answered by a stranger."""
    async with deployment(make(), "from a") as a, deployment(make(), "from b") as b:
        assert (await ask(a.sessions, sid)).text == "from a"
        with pytest.raises(ForeignDeploymentError) as refused:
            await ask(b.sessions, sid)
        assert str(a.plugin.settings.deployment) in str(refused.value)
        assert str(b.plugin.settings.deployment) in str(refused.value)
        assert "HELIX_REDIS_URL" in str(refused.value)
        assert [each.text for each in await a.sessions.session(sid).get_messages()] == ["hello", "from a"]


@pytest.mark.parametrize(
    "request_",
    [
        lambda client, sid: client.send(sid, "hello", agent="main"),
        lambda client, sid: client.session(sid).get_status(),
        lambda client, sid: client.session(sid).get_pending_calls(),
        lambda client, sid: client.session(sid).stop(),
        lambda client, sid: client.session(sid).close(),
        lambda client, sid: client.session(sid, agent="main").rewind(EMPTY),
        lambda client, sid: client.session(sid, agent="main").regenerate(),
        lambda client, sid: client.session(sid).submit_tool_result("call", "yes"),
        lambda client, sid: client.session(sid).result(),
        lambda client, sid: client.session(sid).wait_for_change(),
    ],
    ids=[
        *("send", "status", "pending", "stop", "close", "rewind", "regenerate", "submit", "result"),
        "wait_for_change",
    ],
)
async def test_nothing_is_told_to_another_deployment(make: Make, sid: str, request_: Request) -> None:
    """Neither answers nor states, and no turn is ended by a stranger."""
    async with deployment(make(), "from a") as a, deployment(make(), "from b") as b:
        await ask(a.sessions, sid)
        with pytest.raises(ForeignDeploymentError):
            await request_(b.sessions, sid)
        assert (await a.sessions.session(sid).describe_thread()).head.position == 2


async def test_a_client_without_stores_is_known_by_its_queue(make: Make, sid: str) -> None:
    """It says nothing else of its deployment."""
    first, second = make(), make()
    async with deployment(first, "from a"), deployment(second, "from b"):
        mine, other = (
            await bare(first, task_queue=first.task_queue),
            await bare(first, task_queue=second.task_queue),
        )
        assert (await ask(mine, sid)).text == "from a"
        assert (await ask(mine, sid)).text == "from a"
        for foreign in (
            lambda: ask(other, sid),
            lambda: other.session(sid).get_status(),
            lambda: other.session(sid).result(),
        ):
            with pytest.raises(ForeignDeploymentError, match="HELIX_TASK_QUEUE"):
                await foreign()


async def test_workers_of_other_stores_on_the_same_queue_are_refused(make: Make, sid: str) -> None:
    """What a client reads, deletes, forks or asks is never done in the stores of another worker."""
    mine = make()
    other = mine.model_copy(update={"redis_prefix": "elsewhere:"})
    async with deployment(other, "from the other") as served:
        client = SessionClient((await connected(mine)), options=OPTIONS)
        for foreign in (
            lambda: ask(client, sid),
            lambda: client.session(sid).list_messages(),
            lambda: client.session(sid).get_state(),
            lambda: client.session(sid).delete(),
            lambda: client.session(sid).fork(f"{sid}-copy"),
            lambda: client.session(sid).list_turns(),
            lambda: client.send(sid, "x" * 9000, agent="main"),
        ):
            with pytest.raises(ForeignDeploymentError, match="HELIX_REDIS_PREFIX"):
                await foreign()
        assert served.plugin.settings.deployment != mine.deployment


async def connected(settings: Settings) -> Client:
    return await Client.connect(settings.temporal_address, plugins=[HelixPlugin(settings)])


async def test_a_session_stays_with_the_stores_of_the_worker_that_opened_it(make: Make, sid: str) -> None:
    """Its client names no stores; the worker that follows has others, on the same queue."""
    mine, others = make(), make()
    client = await bare(mine, task_queue=mine.task_queue)
    async with deployment(mine, "from a"):
        assert (await ask(client, sid)).text == "from a"
    async with deployment(others.model_copy(update={"task_queue": mine.task_queue}), "from b"):
        result = await ask(client, sid)
        assert result.text is None
        assert "ForeignDeploymentError" in (result.error or "")
        assert "HELIX_ALSO_KNOWN_AS" in (result.error or "")


async def test_a_worker_with_another_archive_for_the_same_redis_does_not_start(make: Make, sid: str) -> None:
    """It would read what is archived as empty."""
    mine = make()
    async with deployment(mine, "from a") as a:
        assert (await ask(a.sessions, sid)).text == "from a"
        elsewhere = mine.model_copy(update={"s3_prefix": "elsewhere"})
        with pytest.raises(ForeignDeploymentError, match="HELIX_S3_BUCKET"):
            async with deployment(elsewhere, "from b"):
                pass


async def test_a_client_may_name_fewer_stores_than_its_workers(make: Make, sid: str) -> None:
    """A web application that shows streams needs Redis and nothing else."""
    mine = make()
    redis_alone = Settings(
        temporal_address=mine.temporal_address,
        redis_url=mine.redis_url,
        redis_prefix=mine.redis_prefix,
        task_queue=mine.task_queue,
    )
    async with deployment(mine, "from a"):
        client = SessionClient(await connected(redis_alone), options=OPTIONS)
        assert (await ask(client, sid)).text == "from a"
        assert len(await client.session(sid).get_messages()) == 2


async def test_a_worker_without_the_store_that_its_client_names_is_refused(make: Make, sid: str) -> None:
    """One whose address was forgotten or misspelt would serve from memory."""
    mine = make()
    forgetful = Settings(temporal_address=mine.temporal_address, task_queue=mine.task_queue)
    async with deployment(forgetful, "from memory"):
        with pytest.raises(ForeignDeploymentError, match="HELIX_REDIS_URL"):
            await ask(SessionClient(await connected(mine), options=OPTIONS), sid)


async def test_deployments_that_differ_in_name_share_nothing(named: Make, sid: str) -> None:
    """One setting is enough: the same session id is two sessions."""
    async with deployment(named(), "from a") as a, deployment(named(), "from b") as b:
        for served, says in ((a, "from a"), (b, "from b")):
            assert (await ask(served.sessions, sid)).text == says
        for served, says in ((a, "from a"), (b, "from b")):
            assert [each.text for each in await served.sessions.session(sid).get_messages()] == [
                "hello",
                says,
            ]
            name = served.plugin.settings.name
            found = await served.client.get_workflow_handle(workflow_id(sid, name)).describe()
            assert found.id == f"{name}-session/{sid}"
            assert found.task_queue == name
        await a.sessions.session(sid).delete()
        assert len(await b.sessions.session(sid).get_messages()) == 2
        assert await b.plugin.backends.sessions.load_state(sid) is not None


async def test_schedules_are_the_deployments_own(named: Make) -> None:
    """Maintenance of one does not replace that of another, even on the same queue."""
    first, second = named(task_queue="shared"), named(task_queue="shared")
    clients = [await connected(each) for each in (first, second)]
    names = [await ensure_schedules(each, "shared") for each in clients]
    try:
        assert not set(names[0]) & set(names[1])
        assert all(each.startswith(f"{first.name}-maintenance/shared/") for each in names[0])
    finally:
        for each in clients:
            await remove_schedules(each, "shared")


async def test_the_identity_goes_with_continue_as_new_and_reset(make: Make, sid: str) -> None:
    """The next run is asked by nobody whose it is, and a reset begins in the middle."""
    mine, other = make(), make()
    async with deployment(mine, "from a") as a, deployment(other, "from b") as b:
        client = a.create_client(SessionOptions(idle_timeout=60, max_turns_per_run=1))
        for text in ("one", "two", "three"):
            await client.ask(sid, text, agent="main", timeout=SECONDS)
        events = list((await a.client.get_workflow_handle(workflow_id(sid)).fetch_history()).events)
        assert events[0].workflow_execution_started_event_attributes.continued_execution_run_id
        said = [
            each.activity_task_scheduled_event_attributes.header.fields["helix"].data.decode()
            for each in events
            if each.HasField("activity_task_scheduled_event_attributes")
        ]
        assert set(said) <= {str(mine.deployment)}
        with pytest.raises(ForeignDeploymentError):
            await ask(b.sessions, sid)


async def test_a_reset_session_is_still_its_deployments(make: Make, sid: str) -> None:
    """The new branch begins with the memo and the header of the old one."""
    mine, other = make(), make()
    async with deployment(mine, "from a") as a, deployment(other, "from b") as b:
        await ask(a.sessions, sid)
        events = list((await a.client.get_workflow_handle(workflow_id(sid)).fetch_history()).events)
        ends = [each.event_id for each in events if each.HasField("workflow_task_completed_event_attributes")]
        await reset_workflow(a.client, workflow_id(sid), ends[0])
        with pytest.raises(ForeignDeploymentError):
            await b.sessions.session(sid).get_status()
        assert (await ask(a.sessions, sid)).text == "from a"


async def test_sub_agents_are_of_the_same_deployment(named: Make, sid: str) -> None:
    """Their workflows have its name, and say whose they are."""
    settings = named()
    async with session_worker(settings, Team().agents(), options=OPTIONS, drain=1.0) as served:
        asked = await served.sessions.ask(sid, "where", agent="asks", timeout=SECONDS)
        (call,) = asked.pending
        child = served.client.get_workflow_handle(workflow_id(call.route[0], settings.name))
        found = await child.describe()
        assert found.id.startswith(f"{settings.name}-session/")
        assert await found.memo_value("helix") == str(settings.deployment)
        answered = await served.sessions.session(sid).submit_tool_result(
            call, "here", wait=True, timeout=SECONDS
        )
        assert answered.result is not None
        assert answered.result.text == "they said here"


async def test_a_sub_agent_that_has_ended_is_woken_in_its_deployment(named: Make, sid: str) -> None:
    """The answer goes to the root, which starts the sub-agent again, under the deployment's name."""
    settings = named()
    options = OPTIONS.model_copy(update={"suspend": "exit"})
    async with session_worker(settings, Team().agents(), options=options, drain=1.0) as served:
        asked = await served.sessions.ask(sid, "where", agent="asks", timeout=SECONDS)
        await served.sessions.session(sid).result()
        (call,) = await served.sessions.session(sid).get_pending_calls()
        assert [call.id] == [each.id for each in asked.pending]
        answered = await served.sessions.session(sid).submit_tool_result(
            call, "here", wait=True, timeout=SECONDS
        )
        assert answered.result is not None
        assert answered.result.text == "they said here"


async def test_the_maintenance_worker_wakes_sessions_of_its_deployment_alone(named: Make, sid: str) -> None:
    """A deadline has passed in both; each is told by its own worker, as its own workflow."""
    options = OPTIONS.model_copy(update={"suspend": "exit"})
    mine, other = named(), named()
    async with (
        session_worker(mine, Team().agents(), options=options, drain=1.0) as a,
        session_worker(other, Team().agents(), options=options, drain=1.0) as b,
    ):
        for served in (a, b):
            await served.sessions.ask(sid, "where", agent="hurried", timeout=SECONDS)
            await served.sessions.session(sid).result()
        await asyncio.sleep(HURRIED + 0.1)
        result = await a.client.execute_workflow(
            WakeWorkflow.run, WakeInput(), id=f"wake-{sid}", task_queue=mine.task_queue
        )
        assert result.woken == 1
        woken = await a.client.get_workflow_handle(workflow_id(sid, mine.name)).describe()
        assert await woken.memo_value("helix") == str(mine.deployment)
        left = await b.client.get_workflow_handle(workflow_id(sid, other.name)).describe()
        assert left.close_time is not None
        assert await b.sessions.session(sid).get_pending_calls()


async def test_a_clean_up_ends_no_session_of_another_deployment(make: Make, sid: str) -> None:
    """The same id has expired here, and runs there: what runs there is not asked to end."""
    mine, other = make(), make()
    options = OPTIONS.model_copy(update={"suspend": "exit"})
    async with (
        deployment(mine, "from a") as a,
        session_worker(other, Team().agents(), options=options, drain=1.0) as b,
    ):
        await b.sessions.ask(sid, "where", agent="asker", timeout=SECONDS)
        await b.sessions.session(sid).result()
        await b.sessions.session(sid).set_properties(SessionProperties(expires_at=1))
        await ask(a.sessions, sid)
        result = await b.client.execute_workflow(
            CleanupWorkflow.run, CleanupInput(), id=f"cleanup-{sid}", task_queue=other.task_queue
        )
        assert result.expired.marked == 1
        running = await a.client.get_workflow_handle(workflow_id(sid)).describe()
        assert running.close_time is None
        assert (await a.sessions.session(sid).get_status()).status is Status.IDLE


async def test_the_facade_talks_to_the_deployment_of_its_client(named: Make, sid: str) -> None:
    """Also where it is given Temporal's client and makes its own `SessionClient`."""
    settings, desk = named(), Desk()
    desk.default = lambda _: "from a"
    async with session_worker(settings, desk.agents(), options=OPTIONS, drain=1.0) as served:
        agent = next(each for each in desk.agents() if each.name == "main")
        session = await create_session(agent, session_id=sid, client=served.client)
        await session.send("hello")
        said = [each async for each in session.receive()]
        assert any(getattr(each, "text", None) == "from a" for each in said)
        assert [each.text for each in await session.get_messages()] == ["hello", "from a"]
        assert [each.text for each in await served.sessions.session(sid).get_messages()] == [
            "hello",
            "from a",
        ]


async def test_stores_that_were_moved_on_purpose_serve_running_sessions(make: Make, sid: str) -> None:
    """A new address is another identity, until the worker is told what it was before."""
    before = make()
    moved = before.model_copy(
        update={
            "redis_url": (before.redis_url or "").rstrip("/") + "/",
            "redis_prefix": f"{before.redis_prefix}2:",
        }
    )
    known = moved.model_copy(update={"also_known_as": (str(before.deployment),)})
    async with deployment(before, "from a") as served:
        assert (await ask(served.sessions, sid)).text == "from a"
        old = served.sessions
    async with deployment(moved, "from b") as served:
        with pytest.raises(
            ForeignDeploymentError, match=f"HELIX_ALSO_KNOWN_AS={before.deployment}".replace("+", r"\+")
        ):
            await ask(old, sid)
    async with deployment(known, "from c") as served:
        assert (await ask(served.sessions, sid)).text == "from c"
        assert [each.text for each in await served.sessions.session(sid).get_messages()][-4:] == [
            *("hello", "from a"),
            *("hello", "from c"),
        ]


async def test_a_deletion_ends_and_deletes_no_session_of_another_deployment(make: Make, sid: str) -> None:
    """What is stored here goes; what runs there under the same id is neither cancelled nor deleted."""
    mine, other = make(), make()
    async with deployment(mine, "from a") as a, deployment(other, "from b") as b:
        await ask(b.sessions, sid)
        await b.sessions.session(sid).close()
        await b.sessions.session(sid).result()
        await ask(a.sessions, sid)
        deleted = await b.sessions.session(sid).delete()
        assert deleted.sessions == (sid,)
        assert (await ask(a.sessions, sid)).text == "from a"
        assert [each.text for each in await a.sessions.session(sid).get_messages()] == ["hello", "from a"] * 2
