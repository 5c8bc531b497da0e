"""LangGraph threads inside workflows of `temporalio.langgraph`: by activities, replayed, killed, fenced."""

import asyncio
import itertools
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle, WorkflowHistory
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.worker import Replayer

from helix_temporal import Backends, Settings
from helix_temporal.frameworks.langgraph import HelixSaver
from helix_temporal.frameworks.langgraph_activities import GraphActivities, HelixGraphPlugin
from helix_temporal.frameworks.langgraph_records import CheckpointHead, PendingWrite, StoredCheckpoint
from helix_temporal.frameworks.langgraph_wire import (
    LOAD,
    OPEN,
    SAVE,
    DeleteThread,
    ListCheckpoints,
    LoadCheckpoint,
    OpenGraphThread,
    SavedChange,
    SaveThread,
    pack_checkpoint,
    pack_writes,
)
from tests.docs._pages import ROOT, blocks
from tests.frameworks._histories import list_unwatched
from tests.frameworks.conftest import BackendsOpener
from tests.frameworks.langgraph_worker import Conversation, Historian, make_plugins, make_worker

CONFIG: Any = {"configurable": {"thread_id": "t"}}


@pytest.fixture
async def client(temporal_address: str) -> Client:
    """A client without plugins of ours."""
    return await Client.connect(temporal_address)


@pytest.fixture
async def backends(open_backends: BackendsOpener) -> AsyncIterator[Backends]:
    """Stores of each kind."""
    async with open_backends() as opened:
        yield opened


@pytest.fixture
def directory(data_directory: Path) -> Path:
    """Where the threads are, which workers and tests share."""
    data_directory.mkdir()
    return data_directory


async def start(client: Client, queue: str, number: int = 1) -> WorkflowHandle[Conversation, list[str]]:
    """A conversation on thread ``t``."""
    return await client.start_workflow(Conversation.run, "t", id=f"{queue}-{number}", task_queue=queue)


async def say(handle: WorkflowHandle[Conversation, list[str]], text: str) -> list[str]:
    """One run of the graph; what the thread holds behind it."""
    told: list[str] = await handle.execute_update("say", text)
    return told


async def finish(handle: WorkflowHandle[Conversation, list[str]]) -> list[str]:
    """What the thread holds at the end."""
    await handle.signal(Conversation.end)
    return await handle.result()


def count_activities(history: WorkflowHistory) -> Counter[str]:
    """How often each activity was scheduled."""
    scheduled = (each.activity_task_scheduled_event_attributes for each in history.events)
    return Counter(each.activity_type.name for each in scheduled if each.activity_type.name)


async def list_ids(directory: Path) -> list[str]:
    """The ids of the thread's checkpoints, as a program outside of workflows reads them, newest first."""
    backends = Backends(Settings.from_env({"HELIX_DATA_DIRECTORY": str(directory)}))
    saver = HelixSaver(backends.records, backends.sessions)
    found = [each async for each in saver.alist(CONFIG)]
    for child, parent in itertools.pairwise(found):
        assert child.parent_config is not None
        assert child.parent_config["configurable"]["checkpoint_id"] == parent.checkpoint["id"]
    await backends.close()
    return [each.checkpoint["id"] for each in found]


def start_process(*arguments: str) -> subprocess.Popen[bytes]:
    """A worker in a process of its own."""
    program = (
        "import asyncio, sys; from tests.frameworks.langgraph_worker import main;"
        " asyncio.run(main(*sys.argv[1:]))"
    )
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", program, *arguments], cwd=ROOT, env=variables)


async def wait_for_stop(directory: Path) -> None:
    """Until the model waits, in whatever process."""
    while not await asyncio.to_thread((directory / "stopped").exists):  # noqa: ASYNC110 (another process)
        await asyncio.sleep(0.05)


def list_runs(directory: Path) -> list[str]:
    """What the model was asked, each time that it ran."""
    return (directory / "ran").read_text().split()


async def test_a_turn_is_one_activity(client: Client, unique: str, directory: Path) -> None:
    """Beside those of the graph: the thread is opened once, and stored once each turn."""
    async with make_worker(client, unique, directory):
        handle = await start(client, unique)
        for number in range(3):
            told = await say(handle, f"{number}")
            assert told == [each for n in range(number + 1) for each in (f"{n}", f"answer to {n}")]
        await finish(handle)
    history = await handle.fetch_history()
    assert count_activities(history) == {"conversation.answer": 3, OPEN: 1, SAVE: 3}
    assert list_unwatched(history, 10) == []
    assert len(await list_ids(directory)) == 3


@pytest.mark.parametrize("cached", [0, 100])
async def test_a_conversation_goes_on_in_another_execution(
    client: Client, unique: str, directory: Path, cached: int
) -> None:
    """Interrupted in the one, resumed in the other, with or without a replay of everything at each step."""
    async with make_worker(client, unique, directory, max_cached_workflows=cached):
        first = await start(client, unique, 1)
        await say(first, "hello")
        await say(first, "ask")
        assert await finish(first) == ["hello", "answer to hello", "ask", "answer to ask"]
        second = await start(client, unique, 2)
        told = await say(second, "resume:yes")
        assert told[-2:] == ["answer to ask", "decided yes"]
        await say(second, "ask")
        await say(second, "resume:no")
        told = await finish(second)
        assert told[-3:] == ["ask", "answer to ask", "decided no"]
    assert list_runs(directory) == ["hello", "ask", "ask"]
    assert len(await list_ids(directory)) == 5
    for handle in (first, second):
        replayer = Replayer(workflows=[Conversation], plugins=make_plugins(directory))
        await replayer.replay_workflow(await handle.fetch_history())
    assert count_activities(await second.fetch_history())[LOAD] == 1


async def test_a_second_execution_fences_the_first(client: Client, unique: str, directory: Path) -> None:
    """Which fails when it stores, by a type of ours; the thread has what the second one wrote."""
    async with make_worker(client, unique, directory):
        first, second = await start(client, unique, 1), await start(client, unique, 2)
        await say(first, "one")
        await say(second, "two")
        saying = asyncio.create_task(say(first, "three"))
        with pytest.raises(WorkflowFailureError) as failed:
            await first.result()
        assert isinstance(failed.value.cause, ActivityError)
        assert isinstance(failed.value.cause.cause, ApplicationError)
        assert failed.value.cause.cause.type == "FencedError"
        with pytest.raises(Exception, match="update"):
            await saying
        assert await finish(second) == ["one", "answer to one", "two", "answer to two"]


async def test_a_worker_that_is_killed_in_a_turn_leaves_no_half_of_it(
    client: Client, temporal_address: str, unique: str, directory: Path
) -> None:
    """The next one does the turn again from where the thread stood; what was stored is there once."""
    process = start_process(temporal_address, unique, str(directory))
    try:
        handle = await start(client, unique)
        await say(handle, "first")
        saying = asyncio.create_task(say(handle, "slow"))
        await wait_for_stop(directory)
    finally:
        process.kill()
        process.wait()
    before = await list_ids(directory)
    assert len(before) == 1
    async with make_worker(client, unique, directory):
        told = await saying
        assert told == ["first", "answer to first", "slow", "answer to slow"]
        assert await finish(handle) == told
    assert (await list_ids(directory))[1:] == before
    assert list_runs(directory) == ["first", "slow", "slow"]


async def test_what_a_program_does_with_checkpoints_a_workflow_does(
    client: Client, unique: str, directory: Path
) -> None:
    """Delta channels, the history, a fork of the past, and the end of the thread."""
    async with make_worker(client, unique, directory):
        told = await client.execute_workflow(Historian.run, "t", id=unique, task_queue=unique)
    assert told["delta"] == ["a", "noted", "b", "noted", "c", "noted"]
    assert told["ends"] == [6, 4, 2]
    assert told["fork"] == ["a", "noted", "d", "noted"]
    assert told["deleted"] is None
    assert await list_ids(directory) == []
    handle = client.get_workflow_handle(unique)
    replayer = Replayer(workflows=[Historian], plugins=make_plugins(directory))
    await replayer.replay_workflow(await handle.fetch_history())


async def test_an_activity_that_is_done_again_changes_nothing(backends: Backends) -> None:
    """Its answer may be lost at any time; behind a delete what is stored late is refused for good."""
    activities = GraphActivities(HelixGraphPlugin(backends.settings, backends=backends))
    opened = [await activities.open_thread(OpenGraphThread("t")) for _ in range(2)]
    assert opened[0].epoch < opened[1].epoch
    head = CheckpointHead("", "1", None, ("msgpack", b"\x80"), ("msgpack", b"\x80"), {"n": 1})
    found = StoredCheckpoint(head, {"n": ("msgpack", b"\x07")}, (), 0)
    writes = pack_writes([PendingWrite("task", 0, "n", "", ("msgpack", b"\x08"))])
    changes = [SavedChange(pack_checkpoint(found)), SavedChange(None, "", "1", writes)]
    for _ in range(2):
        saved = await activities.save_thread(SaveThread("t", opened[1].epoch, changes))
        assert saved.checkpoint_ids == ["1"]
    listed = await activities.list_checkpoints(ListCheckpoints("t", ""))
    (stored,) = listed.checkpoints
    assert (stored.values, stored.writes) == (pack_checkpoint(found).values, writes)
    with pytest.raises(ApplicationError) as fenced:
        await activities.save_thread(SaveThread("t", opened[0].epoch, changes))
    assert (fenced.value.type, fenced.value.non_retryable) == ("FencedError", True)
    for _ in range(2):
        await activities.delete_thread(DeleteThread("t"))
    with pytest.raises(ApplicationError) as late:
        await activities.save_thread(SaveThread("t", opened[1].epoch, changes))
    assert late.value.type in {"FencedError", "SessionNotFoundError"}
    assert (await activities.load_checkpoint(LoadCheckpoint("t", ""))).checkpoint is None


@pytest.mark.timeout(400)
def test_the_example_runs(temporal_address: str) -> None:
    """As its page says, word for word: two workers were killed, and each message stands once."""
    folder = ROOT / "examples" / "langgraph_sessions"
    own_environment = {name: value for name, value in os.environ.items() if not name.startswith("HELIX_")}
    ran = subprocess.run(
        [sys.executable, str(folder / "langgraph_in_a_workflow.py")],
        env={**own_environment, "PYTHONPATH": str(ROOT), "HELIX_TEMPORAL_ADDRESS": temporal_address},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    # Beside them, the workers may print warnings on a busy machine.
    labels = ("a worker:", "thread:", "stored:", "ran:")
    lines = [line for line in ran.stdout.splitlines() if line.startswith(labels)]
    assert lines == [
        "a worker: ended with -9 after orders.answer",
        f"a worker: ended with -9 after {SAVE}",
        "thread:   user: Where is NL-20417?",
        "thread:   tool: NL-20417 is on its way",
        "thread:   model: NL-20417 is on its way; I have read 2 messages",
        "thread:   user: And NL-20433?",
        "thread:   tool: NL-20433 is delivered",
        "thread:   model: NL-20433 is delivered; I have read 5 messages",
        "stored:   2 checkpoints for 2 questions",
        f"ran:      1 {OPEN}, 2 orders.find_order, 3 orders.answer, 3 {SAVE}",
    ]
    assert blocks(folder / "README.md", "text") == ["\n".join([*lines, ""])]
