"""The maintenance worker on a real Temporal server, with Redis and S3."""

import asyncio
import hashlib
import itertools
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from temporalio.client import Client, ScheduleActionExecutionStartWorkflow, WorkflowExecutionStatus
from temporalio.service import RPCError

from helix_temporal.agents import Agent, ModelRequest, ModelResponse, ScriptedModel, client_tool
from helix_temporal.client import SessionClient, workflow_id
from helix_temporal.coldtier import TieredThreads
from helix_temporal.errors import ArchiveAccessError, InvalidConfigError, ThreadNotFoundError
from helix_temporal.maintenance import MaintenancePlan, ensure_schedules, maintenance_queue, remove_schedules
from helix_temporal.models.maintenance import KeepInput, KeepResult
from helix_temporal.models.messages import ToolCall
from helix_temporal.models.sessions import SessionOptions
from helix_temporal.models.states import CreateSession
from helix_temporal.models.steps import PutTextInput
from helix_temporal.models.waiting import NO_ANSWER
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings
from helix_temporal.stores.protocols.records import Record, RecordChange, WantedRecords
from helix_temporal.stores.protocols.threads import ForkThread
from helix_temporal.testing.contracts._threads_base import LATER, Author, noise
from helix_temporal.testing.faults import BlobFault, FaultyBlobs
from helix_temporal.worker import HelixWorker, connect
from helix_temporal.workflows import KeepWorkflow, ThreadRequest, ThreadWorkflow

pytestmark = pytest.mark.slow

RARELY = MaintenancePlan(
    sweep=timedelta(days=1), evict=timedelta(days=1), keep=timedelta(days=1), wake=timedelta(days=1)
)
LONG = "æ " * 80
PARROT = Agent(name="parrot", model=ScriptedModel(lambda request: request.messages[-1].text))


def _asks(request: ModelRequest) -> ModelResponse:
    """Ask for a client's answer, then tell what came of it."""
    if request.messages[-1].role == "user":
        return ModelResponse(tool_calls=(ToolCall(id="1", name="soon", arguments={}),))
    return ModelResponse(request.messages[-1].text)


ASKING = Agent(name="asking", model=ScriptedModel(_asks), tools=[client_tool("soon", answer_within=0.1)])


@pytest.fixture
async def workers(settings: Settings) -> AsyncIterator[tuple[Client, HelixPlugin]]:
    """A session worker and a maintenance worker; steps are archived at the session's end only."""
    lazy = settings.model_copy(update={"flush": "exit", "archive_records_after": timedelta(seconds=1)})
    client, helix = await connect(lazy, [PARROT, ASKING])
    keeper, keeping = await connect(lazy)
    async with (
        HelixWorker(client, helix),
        HelixWorker(keeper, keeping, task_queue=maintenance_queue(settings.task_queue)),
    ):
        yield client, helix


async def triggered(client: Client, schedule_id: str) -> None:
    """Run a schedule's workflow once, now, and wait until it has completed."""
    handle = client.get_schedule_handle(schedule_id)
    await handle.trigger()
    while not (runs := (await handle.describe()).info.recent_actions):  # noqa: ASYNC110 (the server's)
        await asyncio.sleep(0.05)
    run = runs[-1].action
    assert isinstance(run, ScheduleActionExecutionStartWorkflow)
    await client.get_workflow_handle(run.workflow_id).result()


async def test_schedules_are_made_once_and_brought_up_to_date(
    workers: tuple[Client, HelixPlugin], task_queue: str
) -> None:
    """Every maintenance worker makes sure of them when it starts."""
    client, _ = workers
    names = await ensure_schedules(client, task_queue, RARELY)
    weekly = MaintenancePlan(sweep=timedelta(days=7), evict=timedelta(days=1), keep=timedelta(days=1))
    assert await ensure_schedules(client, task_queue, weekly) == names
    described = await client.get_schedule_handle(names[0]).describe()
    assert [each.every for each in described.schedule.spec.intervals] == [timedelta(days=7)]
    await remove_schedules(client, task_queue)


async def test_a_removal_that_died_half_way_is_finished_by_the_next(
    workers: tuple[Client, HelixPlugin], task_queue: str
) -> None:
    """The schedules that are gone already are no error, whichever they are."""
    client, _ = workers
    names = await ensure_schedules(client, task_queue, RARELY)
    await client.get_schedule_handle(names[0]).delete()
    await remove_schedules(client, task_queue)
    await remove_schedules(client, task_queue)
    for name in names:
        with pytest.raises(RPCError, match="not found"):
            await client.get_schedule_handle(name).describe()


async def test_a_paused_schedule_stays_paused(workers: tuple[Client, HelixPlugin], task_queue: str) -> None:
    """An operator paused it for a reason; a worker that starts again must not undo that."""
    client, _ = workers
    names = await ensure_schedules(client, task_queue, RARELY)
    await client.get_schedule_handle(names[0]).pause()
    await ensure_schedules(client, task_queue, RARELY)
    assert (await client.get_schedule_handle(names[0]).describe()).schedule.state.paused
    await remove_schedules(client, task_queue)


async def test_what_a_terminated_session_left_is_archived_and_dropped(
    workers: tuple[Client, HelixPlugin], settings: Settings
) -> None:
    """No ``finally`` runs after a terminate: without a sweep the turn would be in Redis for ever."""
    client, helix = workers
    sessions = SessionClient(client, task_queue=settings.task_queue)
    await sessions.ask("s", "keep this", agent="parrot")
    await client.get_workflow_handle(workflow_id("s")).terminate()
    assert (await helix.backends.threads.read_facts("s")).archived < 2
    names = await ensure_schedules(client, settings.task_queue, RARELY)
    await triggered(client, names[0])
    assert (await helix.backends.threads.read_facts("s")).archived == 2
    await triggered(client, names[1])
    assert await helix.backends.hot.read_header("s") is None
    assert [message.text for message in await sessions.session("s").get_messages()] == [
        "keep this",
        "keep this",
    ]
    await remove_schedules(client, settings.task_queue)


async def test_a_session_that_nobody_answered_is_woken(
    workers: tuple[Client, HelixPlugin], settings: Settings
) -> None:
    """The maintenance worker serves no agents: the session is started where the session workers listen."""
    client, helix = workers
    options = SessionOptions(suspend="exit")
    sessions = SessionClient(client, task_queue=settings.task_queue, options=options)
    await sessions.ask("woken", "go", agent="asking", message_id="m")
    await sessions.session("woken").result()
    names = await ensure_schedules(client, settings.task_queue, RARELY)
    while not (await helix.backends.sessions.list_due()).items:  # noqa: ASYNC110 (the store has no event)
        await asyncio.sleep(0.02)
    await triggered(client, next(name for name in names if name.endswith("/wake")))
    while (result := await sessions.ask("woken", "go", agent="asking", message_id="m")).pending:
        assert result.text is None
    assert result.text == NO_ANSWER
    await remove_schedules(client, settings.task_queue)


@pytest.mark.parametrize("session_id", ["plain", LONG], ids=["plain", "longer than a key"])
async def test_cold_threads_are_found_and_kept(
    workers: tuple[Client, HelixPlugin], settings: Settings, session_id: str
) -> None:
    """Only the archive knows a thread that no session has touched for a year; long ids are hashed there."""
    client, _ = workers
    sessions = SessionClient(client, task_queue=settings.task_queue)
    await sessions.ask(session_id, "hello", agent="parrot")
    await sessions.session(session_id).close()
    await sessions.session(session_id).result()
    audited: KeepResult = await client.execute_workflow(
        KeepWorkflow.run,
        KeepInput(audit=True, whole=True, parts=(hashlib.sha256(session_id.encode()).digest()[0],)),
        id=f"keep-{uuid.uuid4().hex}",
        task_queue=maintenance_queue(settings.task_queue),
    )
    assert (audited.seen, audited.problems, audited.failures) == (1, 0, 0)


async def test_old_records_are_archived_by_the_keeper(
    workers: tuple[Client, HelixPlugin], settings: Settings
) -> None:
    """Once they are as old as the settings say; they are read as before."""
    client, helix = workers
    records, record = helix.backends.records, Record("file", "a", b"x" * 10_000)
    assert records is not None
    await records.write("recorded", RecordChange(puts=(record,)), create=CreateSession(agent_type="graph"))
    await asyncio.sleep(1.1)
    found: KeepResult = await client.execute_workflow(
        KeepWorkflow.run,
        KeepInput(parts=LAST, records=True),
        id=f"keep-{uuid.uuid4().hex}",
        task_queue=maintenance_queue(settings.task_queue),
    )
    assert found.records is not None
    assert (found.records.archived, found.records.failures) == (1, 0)
    assert helix.backends.blobs is not None
    packs = [each.key async for each in helix.backends.blobs.list(f"{settings.s3_prefix}/records/")]
    assert len(packs) == 1
    view = await records.read("recorded", WantedRecords(names=(record.name,)))
    assert view.records == (record,)


LAST = (0xFC, 0xFD, 0xFE, 0xFF)
"""The parts of the archive that the keeper looks at in these tests: all 256 take a while."""


def in_the_last_parts(name: str) -> str:
    """An id that begins so and lies there."""
    names = (f"{name}{number}" for number in itertools.count())
    return next(each for each in names if hashlib.sha256(each.encode()).digest()[0] in LAST)


IDS = pytest.mark.parametrize(
    "thread_id", [in_the_last_parts("id"), in_the_last_parts(LONG)], ids=["plain", "longer than a key"]
)


async def kept(client: Client, settings: Settings, *, abandoned_after: float) -> KeepResult:
    """What the keeper does on its next round."""
    found: KeepResult = await client.execute_workflow(
        KeepWorkflow.run,
        KeepInput(parts=LAST, abandoned_after=abandoned_after),
        id=f"keep-{uuid.uuid4().hex}",
        task_queue=maintenance_queue(settings.task_queue),
    )
    return found


@IDS
async def test_a_text_for_a_session_that_never_began_is_collected(
    workers: tuple[Client, HelixPlugin], settings: Settings, thread_id: str
) -> None:
    """Its message was refused, or its client died before it was sent: no thread is there to be kept."""
    client, helix = workers
    text = PutTextInput(thread_id=thread_id, message_id="m", text="long")
    await client.execute_workflow(
        ThreadWorkflow.run,
        ThreadRequest(put_text=text),
        id=f"put-{uuid.uuid4().hex}",
        task_queue=settings.task_queue,
    )
    young = await kept(client, settings, abandoned_after=3600.0)
    assert (young.seen, young.objects_deleted, young.failures) == (1, 0, 0)
    old = await kept(client, settings, abandoned_after=-1.0)
    assert (old.seen, old.objects_deleted, old.failures) == (1, 1, 0)
    with pytest.raises(ThreadNotFoundError):
        await helix.backends.threads.read_facts(thread_id)


@IDS
async def test_what_is_left_of_a_fork_that_died_is_collected(
    workers: tuple[Client, HelixPlugin], settings: Settings, thread_id: str
) -> None:
    """Its worker was lost between the copies and the manifest, and it was not tried again."""
    client, helix = workers
    author = Author(helix.backends.threads, in_the_last_parts("source"))
    await author.open()
    await author.append(author.step(*noise(300), answer=None))
    before = await author.everything()
    await author.go_cold()
    assert helix.backends.blobs is not None
    blobs = FaultyBlobs(helix.backends.blobs)
    blobs.plan = lambda call: (
        BlobFault.NO_ACCESS
        if blobs.count("copy") and call.method == "put" and call.key.endswith("/manifest")
        else None
    )
    dying = TieredThreads(helix.backends.hot, blobs, prefix=settings.s3_prefix)
    with pytest.raises(ArchiveAccessError):
        await dying.fork(ForkThread(author.thread_id, thread_id, LATER, "forker"))
    young = await kept(client, settings, abandoned_after=3600.0)
    assert (young.seen, young.objects_deleted, young.failures) == (2, 0, 0)
    old = await kept(client, settings, abandoned_after=-1.0)
    assert (old.seen, old.objects_deleted, old.failures) == (2, blobs.count("copy"), 0)
    left = [info.key async for info in blobs.list(dying.layout.thread_prefix(thread_id))]
    assert left == [dying.layout.manifest_key(thread_id)]
    assert await author.everything() == before


async def test_a_sweep_leaves_a_live_session_alone(
    workers: tuple[Client, HelixPlugin], settings: Settings
) -> None:
    """It drops the hot copy under the session's feet; the next turn finds everything."""
    client, _ = workers
    sessions = SessionClient(client, task_queue=settings.task_queue)
    await sessions.ask("s", "one", agent="parrot")
    names = await ensure_schedules(client, settings.task_queue, RARELY)
    await triggered(client, names[1])
    answer = await sessions.ask("s", "two", agent="parrot")
    assert answer.text == "two"
    assert [message.text for message in await sessions.session("s").get_messages()] == [
        "one",
        "one",
        "two",
        "two",
    ]
    described = await client.get_workflow_handle(workflow_id("s")).describe()
    assert described.status is WorkflowExecutionStatus.RUNNING
    await sessions.session("s").close()
    await sessions.session("s").result()
    await remove_schedules(client, settings.task_queue)


def test_an_age_below_an_hour_is_refused() -> None:
    """It would take what is still under way."""
    with pytest.raises(InvalidConfigError, match="abandoned is 0:59:00"):
        MaintenancePlan(abandoned=timedelta(minutes=59))


def test_intervals_below_a_second_are_refused() -> None:
    """A typing error would keep the server busy with nothing else."""
    with pytest.raises(InvalidConfigError, match=r"sweep is .*, at least a second expected"):
        MaintenancePlan(sweep=timedelta(0))
