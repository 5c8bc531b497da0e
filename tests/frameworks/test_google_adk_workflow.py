"""Sessions of ADK inside workflows, on a real Temporal server and every store."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from importlib import util
from pathlib import Path
from typing import Any

import pytest
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.session import Session
from google.genai import types
from temporalio import activity
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.google_adk import GoogleAdkPlugin
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    Replayer,
    UnsandboxedWorkflowRunner,
    Worker,
)

from helix_temporal import Backends, Settings
from helix_temporal.errors import InvalidConfigError
from helix_temporal.frameworks.google_adk import HelixSessionService
from helix_temporal.frameworks.google_adk.contents import ANSWERS, KEPT, KIND, ContentLanes
from helix_temporal.frameworks.google_adk.keys import UserSessionKey
from helix_temporal.frameworks.google_adk.lanes import CONTENTS_LOST, INVOKE_MODEL, ContentsPlace
from helix_temporal.frameworks.google_adk.worker import HelixGoogleAdkPlugin
from helix_temporal.frameworks.google_adk.workflow import APPEND, CREATE, READ
from helix_temporal.stores.protocols.records import Records
from helix_temporal.stores.protocols.sessions import SessionStore
from tests import _services
from tests.docs._pages import ROOT, titled
from tests.frameworks._google_adk_model import register_model
from tests.frameworks._google_adk_workflows import APP, USER, Conversation, EveryCall, SideBySide, Talk
from tests.frameworks._histories import list_unwatched
from tests.frameworks.conftest import BackendsOpener


class LosesAnswers(Interceptor):
    """Activities of some names end, and their first answers are lost."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self.done: list[str] = []

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        """Around each one."""
        return _Losing(next, self)


class _Losing(ActivityInboundInterceptor):
    def __init__(self, inner: ActivityInboundInterceptor, told: LosesAnswers) -> None:
        super().__init__(inner)
        self._told = told

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        answer = await super().execute_activity(input)
        info = activity.info()
        self._told.done.append(info.activity_type)
        if info.activity_type in self._told.names and info.attempt == 1:
            raise ApplicationError("the answer was lost", next_retry_delay=timedelta(milliseconds=10))
        return answer


@dataclass
class Bench:
    """A worker with both plugins, and the sessions from outside."""

    client: Client
    sessions: HelixSessionService
    losing: LosesAnswers
    queue: str
    plugins: list[Any]
    store: SessionStore
    records: Records

    async def start(self, session: str, *lines: str, **fields: Any) -> WorkflowHandle[Any, Any]:
        """A conversation that has begun."""
        talk = Talk(session, list(lines), **fields)
        name = f"{self.queue}-{session}-{len(lines)}-{fields.get('creates', True)}"
        return await self.client.start_workflow(Conversation.run, talk, id=name, task_queue=self.queue)

    async def run(self, session: str, *lines: str, **fields: Any) -> list[Any]:
        """The result of a conversation."""
        handle = await self.start(session, *lines, **fields)
        result: list[Any] = await handle.result()
        return result

    async def load(self, session: str) -> Session:
        """A session as it is stored."""
        found = await self.sessions.get_session(app_name=APP, user_id=USER, session_id=session)
        assert found is not None
        return found


@pytest.fixture
async def bench(
    open_backends: BackendsOpener, temporal_address: str, task_queue: str
) -> AsyncIterator[Bench]:
    """On each of the stores."""
    async with open_backends() as backends:
        plugins: list[Any] = [
            GoogleAdkPlugin(), HelixGoogleAdkPlugin(backends.settings, backends=backends)
        ]  # fmt: skip
        client = await Client.connect(temporal_address, plugins=plugins)
        register_model()
        losing = LosesAnswers()
        async with Worker(
            client,
            task_queue=task_queue,
            workflows=[Conversation, EveryCall, SideBySide],
            interceptors=[losing],
        ):
            service = HelixSessionService(backends.sessions)
            yield Bench(client, service, losing, task_queue, plugins, backends.sessions, backends.records)


def texts(session: Session) -> list[str]:
    """What was said."""
    parts = (part for each in session.events for part in (each.content.parts if each.content else ()))
    return [
        "call" if part.function_call else "result" if part.function_response else part.text for part in parts
    ]


async def test_a_conversation_is_in_the_store(bench: Bench) -> None:
    """With its calls and state, also that of application and user; and another workflow goes on with it."""
    answers, state, count = await bench.run("s1", "hello", "remember blue", "bye", state={"k": 1})
    assert answers == ["echo hello", "remembered", "echo bye"]
    kept = {"k": 1, "fact": "blue", "user:fact": "blue", "app:fact": "blue"}
    assert (state, count) == (kept, 8)
    found = await bench.load("s1")
    assert (found.state, len({each.id for each in found.events})) == (kept, 8)
    answers, state, count = await bench.run("s1", "again", creates=False)
    assert (answers, state, count) == (["echo again"], kept, 10)
    assert texts(await bench.load("s1"))[-2:] == ["again", "echo again"]


async def test_a_worker_that_dies_is_noticed(bench: Bench) -> None:
    """Not after the time that an attempt may take, but after that without a heartbeat."""
    handle = await bench.start("s1", "hello", by_reference=True)
    await handle.result()
    history = await handle.fetch_history()
    assert list_unwatched(history, 30) == []
    assert set(list_unwatched(history, 10)) <= {INVOKE_MODEL}


async def test_an_answer_that_was_lost_changes_nothing(bench: Bench) -> None:
    """Each activity is run twice, and each event stands once; a session that is begun twice is begun once."""
    bench.losing.names = (CREATE, READ, APPEND)
    answers, state, count = await bench.run("s1", "hello", "remember red")
    assert (answers, count) == (["echo hello", "remembered"], 6)
    found = await bench.load("s1")
    assert texts(found) == ["hello", "echo hello", "remember red", "call", "result", "remembered"]
    assert found.state == state
    assert bench.losing.done.count(APPEND) == 12


async def test_what_others_have_appended_since_is_read(bench: Bench) -> None:
    """Their events and changes alone come into the workflow, before the next turn."""
    handle = await bench.start("s1", "hello", "wait", "again")
    found = await _until(bench, "s1", 2)
    delta = {"k": 2, "app:fact": "green"}
    await bench.sessions.append_event(
        found, Event(author="user", invocation_id="other", actions=EventActions(state_delta=delta))
    )
    await handle.signal(Conversation.go_on)
    _, state, count = await handle.result()
    assert (state, count) == (delta, 5)
    sent = await _sent_by(handle, READ)
    assert [len(each.get("events", ())) for each in sent] == [0, 1, 0]


async def test_a_turn_that_was_overtaken_ends_the_workflow(bench: Bench) -> None:
    """With ADK's error, and nothing of it is stored."""
    os.environ["HELIX_TEST_PAUSE"] = "1"
    try:
        handle = await bench.start("s1", "hello")
        found = await _until(bench, "s1", 1)
        await bench.sessions.append_event(found, Event(author="user", invocation_id="other"))
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
    finally:
        del os.environ["HELIX_TEST_PAUSE"]
    assert isinstance(failed.value.cause, ApplicationError)
    assert failed.value.cause.type == "StaleSessionError"
    assert len((await bench.load("s1")).events) == 2


async def test_a_session_that_is_not_there(bench: Bench) -> None:
    """As ADK says it; and one that is there already."""
    with pytest.raises(WorkflowFailureError) as failed:
        await bench.run("s1", "hello", creates=False)
    assert isinstance(failed.value.cause, ApplicationError)
    await bench.sessions.create_session(app_name=APP, user_id=USER, session_id="s1")
    with pytest.raises(WorkflowFailureError) as failed:
        await bench.run("s1", "hello", "again")
    assert isinstance(failed.value.cause, ApplicationError)
    assert failed.value.cause.type == "AlreadyExistsError"


async def test_a_run_may_be_given_the_newest_events_alone(bench: Bench) -> None:
    """Of a session that the workflow has, or has not read whole."""
    await bench.run("s1", "one", "two", "three")
    answers, _, count = await bench.run("s1", "four", "five", creates=False, newest=2)
    assert (answers, count) == (["echo four", "echo five"], 10)


async def test_every_call_of_the_service(bench: Bench) -> None:
    """Each is an activity."""
    done = await bench.client.execute_workflow(
        EveryCall.run, "s1", id=f"{bench.queue}-every", task_queue=bench.queue
    )
    assert done == {
        "missing": True,
        "made": {"user:u": 1, "k": 1},
        "listed": 2,
        "user": {"u": 1},
        "after": ["s1"],
        "same": True,
    }


async def test_histories_replay(bench: Bench) -> None:
    """Without a store, and to the same commands."""
    handle = await bench.start("s1", "hello", "remember blue", "bye")
    await handle.result()
    plugins = [GoogleAdkPlugin(), HelixGoogleAdkPlugin(Settings())]
    replayer = Replayer(workflows=[Conversation], plugins=plugins)
    await replayer.replay_workflow(await handle.fetch_history())


async def test_only_new_events_travel(bench: Bench) -> None:
    """What the workflow has appended is never read back."""
    handle = await bench.start("s1", *(f"size 500 {n}" for n in range(10)))
    await handle.result()
    sent = await _sent_by(handle, READ)
    assert sum(len(each.get("events", ())) for each in sent) == 0


async def test_a_worker_without_a_session_store_is_refused(temporal_address: str) -> None:
    """Where it is made."""
    plugin = HelixGoogleAdkPlugin(Settings(session_store="none"))
    with pytest.raises(InvalidConfigError, match="HELIX_SESSION_STORE"):
        _ = plugin.service


async def test_the_workflow_of_the_page_runs_as_it_stands(bench: Bench, tmp_path: Path) -> None:
    """But for its model and its task queue; it begins the session by itself."""
    program = dict(titled(ROOT / "docs" / "frameworks" / "google-adk.md", "python"))["support_workflow.py"]
    (tmp_path / "support_workflow.py").write_text(program.replace("gemini-2.5-flash", "answering"))
    named = util.spec_from_file_location("support_workflow", tmp_path / "support_workflow.py")
    assert named is not None
    assert named.loader is not None
    found = util.module_from_spec(named)
    sys.modules["support_workflow"] = found
    try:
        named.loader.exec_module(found)
        queue, runner = f"{bench.queue}-page", UnsandboxedWorkflowRunner()
        async with Worker(bench.client, task_queue=queue, workflows=[found.Support], workflow_runner=runner):
            arguments: list[Any] = ["page", ["hello", "again"]]
            await bench.client.execute_workflow(
                "Support", args=arguments, id=f"{queue}-page", task_queue=queue
            )
    finally:
        del sys.modules["support_workflow"]
    stored = await bench.sessions.get_session(app_name="shop", user_id="ann", session_id="page")
    assert stored is not None
    assert texts(stored) == ["hello", "echo hello", "again", "echo again"]


def test_what_a_workflow_imports_reaches_no_driver() -> None:
    """Nor does the plugin, before a worker needs its stores."""
    modules = "helix_temporal.frameworks.google_adk.workflow, helix_temporal.frameworks.google_adk.worker"
    drivers = "{'redis', 'asyncpg', 'aiosqlite', 'aioboto3', 'botocore'}"
    code = f"import sys, {modules}; print(sorted({drivers} & sys.modules.keys()))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.strip() == "[]"


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_workers_that_are_killed_leave_every_event_once(
    temporal_address: str, redis_url: str, unique: str, tmp_path: Path
) -> None:
    """By SIGKILL in the middle of turns; the next one goes on."""
    calls = tmp_path / "calls"
    variables = {
        **_services.service("s3"),
        "HELIX_S3_PREFIX": unique,
        "HELIX_ALLOW_PLAINTEXT": "true",
        "HELIX_REDIS_URL": redis_url,
        "HELIX_REDIS_PREFIX": f"{unique}:",
    }
    environment = {**os.environ, **variables, "HELIX_TEST_CALLS": str(calls), "HELIX_TEST_PAUSE": "0.2"}
    client = await Client.connect(temporal_address, plugins=[GoogleAdkPlugin()])
    lines = [f"line {n}" for n in range(6)]
    handle = await client.start_workflow(
        Conversation.run, Talk("s1", lines), id=f"{unique}-kills", task_queue=unique
    )
    for after in (1, 4):
        with await asyncio.to_thread(_start_worker, temporal_address, unique, environment) as worker:
            await asyncio.to_thread(_wait_for_calls, calls, after)
            worker.send_signal(signal.SIGKILL)
    with await asyncio.to_thread(_start_worker, temporal_address, unique, environment) as worker:
        try:
            answers, _, count = await handle.result()
        finally:
            worker.send_signal(signal.SIGKILL)
    assert (answers, count) == ([f"echo {line}" for line in lines], 12)
    backends = Backends(Settings.from_env(variables))
    found = await HelixSessionService(backends.sessions).get_session(
        app_name=APP, user_id=USER, session_id="s1"
    )
    await backends.close()
    assert found is not None
    assert texts(found) == [text for line in lines for text in (line, f"echo {line}")]
    await Replayer(
        workflows=[Conversation], plugins=[GoogleAdkPlugin(), HelixGoogleAdkPlugin(Settings())]
    ).replay_workflow(await handle.fetch_history())


@pytest.mark.timeout(400)
def test_the_example_runs(temporal_address: str) -> None:
    """As its page says: after two kills each answer was paid for once, and each event stands once."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HELIX_")}
    ran = subprocess.run(
        [sys.executable, "examples/google_adk_sessions/google_adk_in_a_workflow.py"],
        cwd=ROOT,
        env={**environment, "HELIX_TEMPORAL_ADDRESS": temporal_address, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    page = (ROOT / "examples" / "google_adk_sessions" / "README.md").read_text()
    assert ran.stdout in page
    calls = ["model(1 contents)", "find_order(NL-20417)", "model(3 contents)", "model(5 contents)"]
    assert ran.stdout.splitlines() == [
        "the worker ended with -9 after helix.google_adk.invoke_model, events stored: 1",
        "the worker ended with -9 after helix.google_adk.append_event, events stored: 2",
        "Where is NL-20417? NL-20417 is on its way.",
        "Thank you. You are welcome.",
        "repeated by Temporal: helix.google_adk.invoke_model, helix.google_adk.append_event",
        f"calls: {', '.join(calls)}",
        "events stored: 6, with 6 ids",
        "  user: Where is NL-20417?",
        "  support calls find_order",
        "  find_order answers: on its way",
        "  support: NL-20417 is on its way.",
        "  user: Thank you.",
        "  support: You are welcome.",
    ]


def _start_worker(address: str, queue: str, environment: dict[str, str]) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.frameworks._google_adk_worker", address, queue]
    worker = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    return worker


def _wait_for_calls(calls: Path, count: int) -> None:
    while not calls.exists() or len(calls.read_text().splitlines()) < count:
        time.sleep(0.02)


async def _until(bench: Bench, session: str, events: int) -> Session:
    """The session once it has so many events."""
    found = None
    while found is None or len(found.events) < events:
        await asyncio.sleep(0.02)
        found = await bench.sessions.get_session(app_name=APP, user_id=USER, session_id=session)
    return found


async def _sent_by(handle: WorkflowHandle[Any, Any], name: str) -> list[Any]:
    """What activities of a name have answered, as the history has it."""
    history = await handle.fetch_history()
    scheduled: dict[int, str] = {}
    found = []
    for event in history.events:
        if event.HasField("activity_task_scheduled_event_attributes"):
            scheduled[event.event_id] = event.activity_task_scheduled_event_attributes.activity_type.name
        if event.HasField("activity_task_completed_event_attributes"):
            done = event.activity_task_completed_event_attributes
            if scheduled[done.scheduled_event_id] == name:
                found.append(json.loads(done.result.payloads[0].data))
    return found


# -- model calls that carry what is new


def read_given(calls: Path) -> list[list[str]]:
    """What the model was given, call by call."""
    return [json.loads(line) for line in calls.read_text().splitlines()]


def forget_calls(calls: Path) -> None:
    """Begin the file anew."""
    calls.unlink()


LINES = ("hello", "remember blue", "bye", "again")


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the model writes down what it is given."""
    monkeypatch.setenv("HELIX_TEST_CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


async def test_a_model_is_given_all_where_the_call_carries_what_is_new(bench: Bench, calls: Path) -> None:
    """The same as without; no text is twice in what activities of the model are given."""
    plain = await bench.run("s1", *LINES)
    expected = read_given(calls)
    forget_calls(calls)
    handle = await bench.start("s2", *LINES, by_reference=True)
    assert await handle.result() == plain
    assert read_given(calls) == expected
    given = await _given_to(handle, INVOKE_MODEL)
    assert [len(call["request"]["contents"]) for call in given] == [1, 2, 2, 2, 2]
    assert [call["place"]["start"] for call in given] == [0, 1, 3, 5, 7]
    assert not await _given_to(handle, "invoke_model")


async def test_a_history_grows_with_what_is_new(bench: Bench) -> None:
    """Twice the turns are twice the bytes, where all contents in each call make it four times as many."""
    sizes = {}
    for count in (10, 20):
        handle = await bench.start(f"s{count}", *(f"size 2000 {n}" for n in range(count)), by_reference=True)
        await handle.result()
        info = (await handle.describe()).raw_description.workflow_execution_info
        sizes[count] = info.history_size_bytes
    assert sizes[20] < 2.2 * sizes[10]


async def test_contents_that_are_lost_are_sent_again(bench: Bench, calls: Path) -> None:
    """Once; what follows is what is new again."""
    handle = await bench.start("s1", "one", "two", "wait", "three", "four", by_reference=True)
    await _until(bench, "s1", 4)
    key = UserSessionKey(APP, USER, "s1")
    assert await bench.store.delete_session(key.contents_id)
    await handle.signal(Conversation.go_on)
    answers, _, count = await handle.result()
    assert (answers, count) == ([f"echo {n}" for n in ("one", "two", "three", "four")], 8)
    assert read_given(calls)[-1] == ["one", "echo one", "two", "echo two", "three", "echo three", "four"]
    assert len(read_given(calls)) == 4


async def test_an_answer_that_was_paid_for_is_not_paid_for_again(bench: Bench, calls: Path) -> None:
    """The next attempt finds it, also that of a call with a tool; and only its own call does."""
    bench.losing.names = (INVOKE_MODEL,)
    answers, _, count = await bench.run("s1", "one", "one", "remember blue", by_reference=True)
    assert (answers, count) == (["echo one", "echo one", "remembered"], 8)
    assert [len(each) for each in read_given(calls)] == [1, 3, 5, 7]
    assert bench.losing.done.count(INVOKE_MODEL) == 8


async def test_of_a_lane_the_newest_answer_alone_is_kept(bench: Bench) -> None:
    """And goes with the lane, and with the session."""
    key = UserSessionKey(APP, USER, "s1")
    for number in range(KEPT + 2):
        await bench.run("s1", "one", "two", by_reference=True, creates=not number)
    lanes = await bench.records.list_groups(key.contents_id, ANSWERS)
    assert len(lanes) == KEPT
    assert len(await bench.records.read_page(key.contents_id, ANSWERS, lanes[0], limit=9)) == 1
    await bench.sessions.delete_session(app_name=APP, user_id=USER, session_id="s1")
    assert await bench.records.list_groups(key.contents_id, ANSWERS) == ()


async def test_calls_side_by_side_have_lanes_of_their_own(bench: Bench, calls: Path) -> None:
    """Each is given its own contents, and carries what is new of them."""
    handle = await bench.client.start_workflow(
        SideBySide.run, "s1", id=f"{bench.queue}-beside", task_queue=bench.queue
    )
    said = await handle.result()
    given = [each[:count] for each in said for count in (1, 3, 5)]
    assert sorted(read_given(calls)) == sorted(given)
    sent = await _given_to(handle, INVOKE_MODEL)
    assert len({call["place"]["lane"] for call in sent}) == 3
    assert sorted(len(call["request"]["contents"]) for call in sent) == [1, 1, 1, 2, 2, 2, 2, 2, 2]


async def test_contents_go_with_their_session_and_do_not_come_back(bench: Bench) -> None:
    """Nor do those of lanes that nobody uses any more stay."""
    key = UserSessionKey(APP, USER, "s1")
    await bench.run("s1", "one", by_reference=True)
    for _ in range(KEPT + 3):
        await bench.run("s1", "more", by_reference=True, creates=False)
    records = bench.records
    assert len(await records.list_groups(key.contents_id, KIND)) == KEPT
    await bench.sessions.delete_session(app_name=APP, user_id=USER, session_id="s1")
    assert await records.list_groups(key.contents_id, KIND) == ()
    lanes = ContentLanes(records, bench.store)
    place = ContentsPlace(app=APP, user=USER, session="s1", lane="late", start=0, digest="")
    content = types.Content(role="user", parts=[types.Part(text="secret")])
    assert await lanes.complete(place, [content]) == [content]
    assert await records.list_groups(key.contents_id, KIND) == ()


async def test_a_lane_gives_contents_to_whom_knows_them(bench: Bench) -> None:
    """Another digest, or more than it holds, is refused; nothing of it is in the error."""
    await bench.run("s1", "secret words", by_reference=True)
    records, key = bench.records, UserSessionKey(APP, USER, "s1")
    (lane,) = await records.list_groups(key.contents_id, KIND)
    lanes = ContentLanes(records, bench.store)
    for start, digest in ((1, "0" * 32), (1, ""), (2, "0" * 32)):
        place = ContentsPlace(app=APP, user=USER, session="s1", lane=lane, start=start, digest=digest)
        with pytest.raises(ApplicationError) as refused:
            await lanes.complete(place, [])
        assert refused.value.type == CONTENTS_LOST
        assert "secret" not in str(refused.value)


async def test_histories_by_reference_replay(bench: Bench) -> None:
    """Without a store, and to the same commands."""
    handle = await bench.start("s1", *LINES, by_reference=True)
    await handle.result()
    plugins = [GoogleAdkPlugin(), HelixGoogleAdkPlugin(Settings())]
    await Replayer(workflows=[Conversation], plugins=plugins).replay_workflow(await handle.fetch_history())


async def _given_to(handle: WorkflowHandle[Any, Any], name: str) -> list[Any]:
    """What activities of a name were given, as the history has it."""
    history = await handle.fetch_history()
    found = []
    for event in history.events:
        if event.HasField("activity_task_scheduled_event_attributes"):
            told = event.activity_task_scheduled_event_attributes
            if told.activity_type.name == name:
                found.append(json.loads(told.input.payloads[0].data))
    return found
