"""Roll-outs under load: no turn is lost or doubled, no history has trouble, and all sessions move."""

import asyncio
import multiprocessing
import sys
import uuid
from dataclasses import dataclass, field
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client

from helix_temporal.client import SessionClient
from helix_temporal.devstack import S3Endpoint
from helix_temporal.models.sessions import SessionOptions
from helix_temporal.settings import Settings, Timeouts
from helix_temporal.worker import connect, serve
from tests.workflows._load import WORDS, Talk, all_go_on
from tests.workflows._releases import (
    NEW,
    OLD,
    Book,
    FiledBook,
    Releases,
    agents,
    build_of,
    build_of_run,
    failed_tasks,
    list_runs,
    still_running,
    until,
)
from tests.workflows.conftest import make_settings

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(600)]

SHORT = 30
TURNS_A_SECOND = 4.0
"""What the long form asks of two cores; the short one asks for as many as there can be."""
LONG = pytest.param(200, marks=[pytest.mark.campaign, pytest.mark.timeout(1800)])
_CONTEXT = multiprocessing.get_context("spawn")


@pytest.fixture
def settings(temporal_address: str, redis_url: str, s3: S3Endpoint) -> Settings:
    """A task queue, and so a Worker Deployment, of its own."""
    name = f"v{uuid.uuid4().hex[:12]}"
    # Hundreds of sessions in one process: a worker that is merely busy is not dead.
    return make_settings(temporal_address, redis_url, s3, name, timeouts=Timeouts())


def talks_of(sessions: SessionClient, ending: SessionClient, number: int) -> list[Talk]:
    """So many sessions of all kinds, the last third of which is quiet meanwhile; some of those end."""
    busy = number - number // 3
    words = [WORDS[at % len(WORDS)] if at < busy else "say" for at in range(number)]
    clients = [ending if at >= busy and at % 2 else sessions for at in range(number)]
    agrees, pause = asyncio.Event(), busy / TURNS_A_SECOND if number > SHORT else 0.0
    return [
        Talk(client, f"{word}-{uuid.uuid4().hex[:8]}", word, agrees, pause)
        for client, word in zip(clients, words, strict=True)
    ]


@pytest.mark.parametrize("number", [SHORT, LONG])
async def test_all_sessions_move_to_a_new_version(settings: Settings, number: int) -> None:
    """0 → 50 → 100 %, while people talk, wait for approvals and sub-agents, or say nothing."""
    releases = Releases(settings, Book(), options=SessionOptions(idle_timeout=600), seconds=0.05)
    async with releases.serve(NEW) as new:
        async with releases.serve(OLD) as old:
            await releases.make_current(old, OLD)
            ending = SessionClient(
                old.client, task_queue=settings.task_queue, options=SessionOptions(idle_timeout=1)
            )
            talks = talks_of(old.sessions, ending, number)
            busy, quiet = talks[: number - number // 3], talks[number - number // 3 :]
            await asyncio.gather(*(each.turn() for each in quiet))
            stop, agrees = asyncio.Event(), talks[0].agrees
            load = asyncio.gather(*(each.go_on(stop) for each in busy))
            # Who waits for an approval does so until all sessions are to move.
            talking = [each for each in busy if each.word != "sign"]
            await all_go_on(talking, load)
            await releases.ramp(old, NEW, 50)
            await all_go_on(talking, load, 2)
            halves = {await build_of(old.client, each.session_id) for each in talking}
            await releases.ramp(old, NEW, 100)
            await releases.make_current(old, NEW)
            begun = {each.session_id: len(each.said) for each in talks}
            agrees.set()
            await all_go_on(busy, load, 3)
            stop.set()
            await load
            await asyncio.gather(*(each.turn() for each in quiet))
            running = still_running(await list_runs(old.client, settings.task_queue))
            builds = [await build_of_run(old.client, each) for each in running]
        await asyncio.gather(*(each.turn() for each in talks))
        await asyncio.gather(*(each.check_thread() for each in talks))
        runs = await list_runs(new.client, settings.task_queue)
        failed = await failed_tasks(new.client, runs)
    late = [
        [releases.book.builds[each.session_id, text] for text in each.said[begun[each.session_id] :]]
        for each in talks
    ]
    assert not failed
    assert halves == {OLD, NEW}
    assert all(set(builds) == {NEW} for turns in late for builds in turns[1:])
    assert sum(len(turns) for turns in late) > 2 * number
    assert set(builds) == {NEW}
    assert not releases.book.repeated()


def _run(settings: Settings, path: Path) -> None:
    asyncio.run(serve(settings, agents("any", FiledBook(path), seconds=0.3)))


@dataclass
class Fleet:
    """Workers without versions, as ``helix-temporal worker`` runs them."""

    settings: Settings
    path: Path
    running: list[SpawnProcess] = field(default_factory=list)

    def start(self) -> None:
        """One more."""
        process = _CONTEXT.Process(target=_run, args=(self.settings, self.path))
        process.start()
        self.running.append(process)

    async def replace_all(self, client: Client) -> None:
        """Each by a new one, which is ready before the old one is asked to end."""
        for old in list(self.running):
            self.start()
            await until(lambda: self._all_poll(client))
            self.running.remove(old)
            await self.stop(old)

    async def stop(self, process: SpawnProcess) -> None:
        """As a roll-out does, with as much time as it takes; it must end well."""
        assert process.is_alive()
        process.terminate()
        await asyncio.to_thread(process.join, 120)
        assert process.exitcode == 0

    async def _all_poll(self, client: Client) -> bool:
        request = DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=self.settings.task_queue),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        )
        pollers = (await client.workflow_service.describe_task_queue(request)).pollers
        return all(
            any(each.identity.startswith(f"{worker.pid}@") for each in pollers) for worker in self.running
        )


@pytest.mark.parametrize("number", [SHORT, LONG])
async def test_workers_without_versions_are_replaced_under_load(
    settings: Settings, number: int, tmp_path: Path
) -> None:
    """Where the code is compatible, a roll-out loses no turn, and pays for no model call twice.

    One in a hundred sessions may have one repeated: an attempt may end unheard as its worker does.
    """
    book = FiledBook(tmp_path / "calls.jsonl")
    client, _ = await connect(settings)
    sessions = SessionClient(client, task_queue=settings.task_queue, options=SessionOptions(idle_timeout=60))
    ending = SessionClient(client, task_queue=settings.task_queue, options=SessionOptions(idle_timeout=1))
    talks = talks_of(sessions, ending, number)
    talks[0].agrees.set()
    fleet, stop = Fleet(settings, book.path), asyncio.Event()
    fleet.start()
    fleet.start()
    try:
        load = asyncio.gather(*(each.go_on(stop) for each in talks))
        await all_go_on(talks, load, 2)
        await fleet.replace_all(client)
        await all_go_on(talks, load)
        stop.set()
        await load
        await asyncio.gather(*(each.check_thread() for each in talks))
        failed = await failed_tasks(client, await list_runs(client, settings.task_queue))
    finally:
        await asyncio.gather(*(fleet.stop(each) for each in fleet.running))
    repeated, turns = book.read().repeated(), sum(len(each.said) for each in talks)
    sys.stdout.write(f"{number} sessions, {turns} turns: {repeated} model calls were made again\n")
    assert not failed
    assert repeated <= max(1, number // 100)
