"""What clients have workers do, by standalone activities as by short workflows on servers without them."""

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from helix_temporal.client import SessionClient, _diagnosis
from helix_temporal.devstack import S3Endpoint
from helix_temporal.errors import (
    ApplicationCodeError,
    ForeignDeploymentError,
    SessionNotFoundError,
    StoreUnavailableError,
    ThreadExistsError,
)
from helix_temporal.models.sessions import CallPolicy
from helix_temporal.models.states import SessionProperties
from helix_temporal.models.stored_messages import StoredMessage
from helix_temporal.settings import Settings
from helix_temporal.testing.serving import session_worker
from helix_temporal.worker import connect
from helix_temporal.workflows import WORKFLOWS
from tests.workflows._desk import Desk, Gate
from tests.workflows._roll_out import worker_processes
from tests.workflows._ways import CALLS, LONG, address, stand
from tests.workflows.conftest import Stand, make_settings

pytestmark = pytest.mark.asyncio(loop_scope="session")

__all__ = ["address", "stand"]


@pytest.mark.parametrize("name", CALLS)
async def test_each_call_has_its_result_in_either_way(stand: Stand, sid: str, name: str) -> None:
    """A server that lacks standalone activities loses a client nothing."""
    await stand.sessions.ask(sid, "hello", agent="main", message_id="m")
    call, is_expected = CALLS[name]
    assert is_expected(await call(stand.sessions, sid))


async def test_a_call_made_again_finds_the_first(stand: Stand, sid: str) -> None:
    """Who heard nothing repeats it: texts and properties are the same again, a deletion finds nothing."""
    session = stand.sessions.session(sid, agent="main")
    first = await session.ask(LONG, message_id="m")
    assert await session.ask(LONG, message_id="m") == first
    for _ in range(2):
        await session.set_properties(SessionProperties(user_id="u"))
    assert (await session.get_messages())[0].id == "m"
    assert (await session.get_state()).user_id == "u"
    await session.fork(f"{sid}-2")
    with pytest.raises(ThreadExistsError):
        await session.fork(f"{sid}-2")
    assert (await session.delete()).removed["thread"] == 1
    assert "thread" not in (await session.delete()).removed


async def test_errors_have_their_types(stand: Stand, sid: str) -> None:
    """Whoever catches them must not know the server's version."""
    with pytest.raises(SessionNotFoundError) as missing:
        await stand.sessions.session(sid).list_messages()
    assert sid in str(missing.value)
    await stand.sessions.ask(sid, "hello", agent="main")
    with pytest.raises(ThreadExistsError, match=f"thread '{sid}' exists"):
        await stand.sessions.session(sid).fork(sid)


async def test_another_deployment_is_refused(stand: Stand, sid: str) -> None:
    """Its client reaches the queue, and its stores are others."""
    await stand.sessions.ask(sid, "hello", agent="main")
    theirs = stand.served.plugin.settings
    settings = theirs.model_copy(update={"redis_prefix": "other:"})
    client, _ = await connect(settings)
    stranger = SessionClient(client, task_queue=theirs.task_queue).session(sid)
    for call in (stranger.get_messages, stranger.get_state, lambda: stranger.fork(f"{sid}-2")):
        with pytest.raises(ForeignDeploymentError):
            await call()


class Transforms:
    """Transforms of forks, as the tests want them."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.ended = asyncio.Event()
        self.attempts = 0

    async def waits(self, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        """Until it is let go, or cancelled."""
        self.gate.reached.set()
        try:
            await self.gate.opened.wait()
        finally:
            self.ended.set()
        return messages

    async def fails_once(self, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        """As a provider that is away for a moment."""
        self.attempts += 1
        if self.attempts == 1:
            raise ConnectionError("away")
        return messages

    async def has_a_bug(self, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        """Always."""
        raise KeyError(len(messages))


def settings_at(address: str, redis_url: str, s3: S3Endpoint, **changes: Any) -> Settings:
    """Of a worker of the test's own."""
    return make_settings(address, redis_url, s3, f"t{uuid.uuid4().hex[:12]}", **changes)


@pytest.fixture
def own() -> str:
    """A session that no other test has."""
    return f"s-{uuid.uuid4().hex[:8]}"


async def test_code_of_the_application_is_tried_again_or_told(
    address: str, redis_url: str, s3: S3Endpoint, own: str
) -> None:
    """What may pass is tried again, a bug is told with its text."""
    made = Transforms()
    plugin = {"transforms": {"fails": made.fails_once, "bug": made.has_a_bug}}
    settings = settings_at(address, redis_url, s3)
    async with session_worker(settings, Desk().agents(), plugin=plugin, drain=1.0) as served:
        await served.sessions.ask(own, "hello", agent="main")
        assert (await served.sessions.session(own).fork(f"{own}-a", transform="fails")).position == 2
        assert made.attempts == 2
        with pytest.raises(ApplicationCodeError, match="transform 'bug': KeyError: 2"):
            await served.sessions.session(own).fork(f"{own}-b", transform="bug")


async def test_a_result_that_does_not_come_in_time_is_told_as_that(
    address: str, redis_url: str, s3: S3Endpoint, own: str
) -> None:
    """What was asked is named, and nothing that was said."""
    made, settings = Transforms(), settings_at(address, redis_url, s3)
    plugin = {"transforms": {"waits": made.waits}}
    async with session_worker(settings, Desk().agents(), plugin=plugin, drain=1.0) as served:
        await served.sessions.ask(own, "hello", agent="main")
        policy = CallPolicy(model_start_to_close=0.5, model_schedule_to_close=0.5)
        hurried = SessionClient(served.client, task_queue=settings.task_queue, policy=policy)
        with pytest.raises(StoreUnavailableError, match=r"^helix\.threads\.fork: no result in time"):
            await hurried.session(own).fork(f"{own}-a", transform="waits")


async def test_what_runs_for_a_caller_that_gave_up_is_cancelled(
    address: str, redis_url: str, s3: S3Endpoint, own: str
) -> None:
    """A transform may ask a model for minutes; nobody would have its result."""
    made = Transforms()
    settings = settings_at(address, redis_url, s3)
    plugin = {"transforms": {"waits": made.waits}}
    async with session_worker(settings, Desk().agents(), plugin=plugin, drain=1.0) as served:
        await served.sessions.ask(own, "hello", agent="main")
        forking = asyncio.create_task(served.sessions.session(own).fork(f"{own}-a", transform="waits"))
        await made.gate.reached.wait()
        forking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await forking
        async with asyncio.timeout(20):
            await made.ended.wait()


async def test_workers_whose_slots_are_all_taken_are_not_said_to_be_missing(
    address: str, redis_url: str, s3: S3Endpoint, own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They ask for no activities then; the read waits, as it does for any busy worker."""
    monkeypatch.setattr(_diagnosis, "_TAKEN_SECONDS", 0.2)
    monkeypatch.setattr(_diagnosis, "_UNSERVED", 0.5)
    monkeypatch.setattr(_diagnosis, "_UNSERVED_LOOK", 0.2)
    made, settings = Transforms(), settings_at(address, redis_url, s3)
    plugin = {"transforms": {"waits": made.waits}}
    async with session_worker(
        settings, Desk().agents(), plugin=plugin, max_concurrent_activities=1, drain=1.0
    ) as served:
        await served.sessions.ask(own, "hello", agent="main")
        forking = asyncio.create_task(served.sessions.session(own).fork(f"{own}-a", transform="waits"))
        await made.gate.reached.wait()
        reading = asyncio.create_task(served.sessions.session(own).get_messages())
        await asyncio.wait([reading], timeout=4)
        assert not reading.done()
        made.gate.opened.set()
        assert len(await reading) == 2
        assert (await forking).position == 2


async def test_a_first_message_that_waits_for_a_slot_is_told_so(
    address: str, redis_url: str, s3: S3Endpoint, own: str
) -> None:
    """Not that a worker might have gone: one that has taken a workflow task since it waits lives."""
    made, settings = Transforms(), settings_at(address, redis_url, s3)
    settings = settings.model_copy(update={"max_concurrent_activities": 1})
    plugin = {"transforms": {"waits": made.waits}}
    async with session_worker(settings, Desk().agents(), plugin=plugin, drain=1.0) as served:
        await served.sessions.ask(own, "hello", agent="main")
        forking = asyncio.create_task(served.sessions.session(own).fork(f"{own}-a", transform="waits"))
        await made.gate.reached.wait()

        async def ask_after(seconds: float) -> None:
            await asyncio.sleep(seconds)
            await served.sessions.ask(f"{own}-{seconds}", "hello", agent="main", timeout=9)

        asking = [asyncio.create_task(ask_after(each)) for each in (0, 6)]
        with pytest.raises(
            TimeoutError, match=r"all their activity slots .* HELIX_MAX_CONCURRENT_ACTIVITIES"
        ):
            await asking[0]
        made.gate.opened.set()
        await asyncio.gather(forking, asking[1])


@pytest.mark.slow
async def test_a_call_whose_worker_is_killed_is_done_by_another(
    address: str, redis_url: str, s3: S3Endpoint, own: str
) -> None:
    """In the middle of it; the new thread is there once."""
    settings = settings_at(address, redis_url, s3)
    client, _ = await connect(settings)
    sessions = SessionClient(client, task_queue=settings.task_queue)
    async with worker_processes(settings, ("killed",)) as (process,):
        await sessions.ask(own, "hello", agent="added", timeout=60)
        forking = asyncio.create_task(sessions.session(own).fork(f"{own}-a", transform="shout"))
        await asyncio.to_thread(process.join, 30)
        assert process.exitcode is not None
        async with worker_processes(settings, ("new",)):
            assert (await forking).position == 2
            assert len(await sessions.session(f"{own}-a").get_messages()) == 2


@activity.defn(name="helix.older")
async def older_activity() -> None:
    """All that the older worker has."""


async def worker_without_activities(client: Client, settings: Settings) -> Worker:
    """It has the pack's workflows, and lacks every activity that a client asks for."""
    bare = await Client.connect(settings.temporal_address, data_converter=client.data_converter)
    return Worker(
        bare,
        task_queue=settings.task_queue,
        workflows=WORKFLOWS,
        activities=[older_activity],
        workflow_runner=UnsandboxedWorkflowRunner(),
        # As `RollOutInterceptor` has it with every plugin: else the server may hand each try to it again.
        disable_eager_activity_execution=True,
    )


async def test_a_queue_of_older_workers_waits_for_a_newer_one(
    address: str, redis_url: str, s3: S3Endpoint, own: str
) -> None:
    """A roll-out half done: the old worker says that it lacks the activity, and the newer one has it."""
    settings = settings_at(address, redis_url, s3)
    client, _ = await connect(settings)
    sessions = SessionClient(client, task_queue=settings.task_queue)
    async with session_worker(settings, Desk().agents(), drain=1.0) as served:
        await served.sessions.ask(own, "hello", agent="main")
        await served.sessions.session(own).close()
        await served.sessions.session(own).result()
    async with await worker_without_activities(client, settings):
        reading = asyncio.create_task(sessions.session(own).get_messages())
        await asyncio.wait([reading], timeout=3)
        assert not reading.done()
        async with session_worker(settings, Desk().agents(), drain=1.0):
            assert len(await asyncio.wait_for(reading, 60)) == 2
