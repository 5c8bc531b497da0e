"""Bugs of an application, and workers that are missing, as whoever asks gets to know of them."""

import asyncio
import contextlib
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock

import pytest
import pytest_asyncio
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from helix_temporal.agents import (
    Agent,
    ContextPolicy,
    Hooks,
    ModelEvent,
    ModelRequest,
    ModelResponse,
    ScriptedModel,
    TextDelta,
    tool,
)
from helix_temporal.client import SessionClient, _diagnosis, _updates, workflow_id
from helix_temporal.client._diagnosis import Diagnosis
from helix_temporal.devstack import S3Endpoint
from helix_temporal.errors import (
    InvalidConfigError,
    ModelUnavailableError,
    NoWorkerError,
    SessionNotFoundError,
    StoreUnavailableError,
)
from helix_temporal.models.messages import ToolCall
from helix_temporal.models.sessions import AskStatus, FailingCall, SessionOptions
from helix_temporal.plugin import HelixPlugin
from helix_temporal.testing.serving import Served, session_worker
from tests.workflows._ways import left_unserved
from tests.workflows.conftest import TIMEOUTS, make_settings

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]


class Odd(Exception):  # noqa: N818 (an exception of a library that nobody knows)
    """Not one of Python's own."""


@dataclass
class Failing:
    """A model that raises so often, then answers."""

    error: Callable[[], BaseException]
    times: int = 1000
    calls: dict[str, int] = field(default_factory=dict)

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """One call."""
        made = self.calls[request.session_id] = self.calls.get(request.session_id, 0) + 1
        if made <= self.times:
            raise self.error()
        return ModelResponse("at last")


class Endless:
    """A stream that ends without a response."""

    def __init__(self) -> None:
        self.calls = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """One call."""
        self.calls += 1
        yield TextDelta("Good ")


class Malformed:
    """Answers with what a message cannot hold."""

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """One call."""
        return ModelResponse(content=5)  # type: ignore[arg-type]  # that is the bug


def _typo(_: Any) -> str:
    raise AttributeError("'Customer' object has no attribute 'nmae'")


def _leave(_: Any) -> str:
    sys.exit(4)


def _counts(_: Any) -> int:
    raise ZeroDivisionError("division by zero")


KEYLESS = Failing(lambda: KeyError("choices"))
ENDLESS = Endless()
BUSY = Failing(lambda: ModelUnavailableError("the provider is away"), times=4)
ODD = Failing(lambda: Odd("come again"), times=4)
AWAY = Failing(lambda: ConnectionError("connection refused"))
WORDY = Failing(
    lambda: ApplicationError("y" * 900, "z" * 900, type="WordyError", non_retryable=True), times=1
)
DROPPED = Failing(lambda: asyncio.CancelledError("the pool is closed"))
INTERRUPTED = Failing(KeyboardInterrupt)


@tool(attempts=2)
def find(number: int) -> str:
    """Find an order."""
    raise RuntimeError(f"no order {number}; " + "x" * 2000)


@tool(attempts=9)
def charge() -> str:
    """Refuse for good, as one who knows Temporal would."""
    LEFT.append(1)
    card = ConnectionError("the gateway said: card 4111 1111 1111 1111")
    raise ApplicationError(
        "x" * 900, "card 4111 1111 1111 1111", type="CardRefused", non_retryable=True
    ) from card


@tool(attempts=9)
def lookup() -> str:
    """Raises an error of the pack's, as an asked session might."""
    LEFT.append(1)
    raise SessionNotFoundError("x" * 900)


@tool(attempts=2)
def reach() -> str:
    """One of the pack's that may pass."""
    LEFT.append(1)
    raise StoreUnavailableError("x" * 900)


@tool(attempts=9)
async def misspell() -> str:
    """Has a bug."""
    MISSPELT.append(1)
    return {"a": "b"}["c"]


@tool(attempts=9)
async def leave() -> str:
    """Ends the program, as a script's main function does."""
    LEFT.append(1)
    sys.exit(3)


@tool(attempts=9)
def leave_thread() -> str:
    """The same in a thread."""
    LEFT.append(1)
    sys.exit("no such order")


@tool(attempts=9)
async def drop() -> str:
    """Waits for a task that somebody else cancelled."""
    LEFT.append(1)
    task = asyncio.ensure_future(asyncio.sleep(60))
    task.cancel("the pool is closed")
    await task
    return "there"


@tool(attempts=9)
def interrupt_thread() -> str:
    """Raises what Ctrl-C does, in a thread."""
    LEFT.append(1)
    raise KeyboardInterrupt


@tool(attempts=1, timeout=1)
async def dawdle() -> str:
    """Takes its time."""
    await asyncio.sleep(60)
    return "there"


class Caller:
    """Calls its tool once, and says what came of it."""

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """One call."""
        last = request.messages[-1]
        if last.role == "tool":
            return ModelResponse(last.text)
        arguments: dict[str, Any] = {"number": 7} if request.tools[0].name == "find" else {}
        return ModelResponse(
            tool_calls=(ToolCall(id="call-1", name=request.tools[0].name, arguments=arguments),)
        )


MISSPELT: list[int] = []
LEFT: list[int] = []
WELL = Agent(name="well", model=ScriptedModel(lambda _: "at once"))
AGENTS = [
    Agent(name="finding", model=Caller(), tools=[find]),
    Agent(name="reserved", model=Caller(), tools=[find], hide_errors=True),
    Agent(name="charging", model=Caller(), tools=[charge]),
    Agent(name="charging-reserved", model=Caller(), tools=[charge], hide_errors=True),
    Agent(name="looking", model=Caller(), tools=[lookup]),
    Agent(name="looking-reserved", model=Caller(), tools=[lookup], hide_errors=True),
    Agent(name="reaching", model=Caller(), tools=[reach]),
    Agent(name="wordy", model=WORDY),
    Agent(name="bugged", model=Caller(), tools=[misspell]),
    Agent(name="leaving", model=Caller(), tools=[leave]),
    Agent(name="leaving-thread", model=Caller(), tools=[leave_thread]),
    Agent(name="dropping", model=Caller(), tools=[drop]),
    Agent(name="dropping-reserved", model=Caller(), tools=[drop], hide_errors=True),
    Agent(name="interrupting", model=Caller(), tools=[interrupt_thread]),
    Agent(name="dropped", model=DROPPED),
    Agent(name="interrupted", model=INTERRUPTED),
    Agent(name="leaving-hook", model=AWAY, hooks=Hooks(before_user_message=_leave)),
    Agent(name="dawdling", model=Caller(), tools=[dawdle]),
    Agent(name="keyless", model=KEYLESS),
    Agent(name="endless", model=ENDLESS),
    Agent(name="malformed", model=Malformed()),
    Agent(name="misspelt", model=AWAY, instructions=_typo),
    Agent(name="counting", model=AWAY, context=ContextPolicy(max_tokens=10, count_tokens=_counts)),
    Agent(name="hooked", model=AWAY, hooks=Hooks(before_user_message=_typo)),
    Agent(name="busy", model=BUSY),
    WELL,
    Agent(name="odd", model=ODD),
    Agent(name="away", model=AWAY),
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def served(temporal_address: str, redis_url: str, s3: S3Endpoint) -> AsyncIterator[Served]:
    """A worker whose model calls may take 9 seconds with all attempts."""
    timeouts = TIMEOUTS.model_copy(
        update={"model_start_to_close": timedelta(seconds=5), "model_schedule_to_close": timedelta(seconds=9)}
    )
    settings = make_settings(
        temporal_address, redis_url, s3, f"t{uuid.uuid4().hex[:12]}", timeouts=timeouts, session_store="none"
    )
    async with session_worker(settings, AGENTS, options=SessionOptions(idle_timeout=5), drain=1.0) as served:
        yield served


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        ("keyless", "ApplicationCodeError: model of agent 'keyless': KeyError: 'choices'"),
        ("endless", "ModelStreamEndedError: the model's stream ended without a ModelResponse"),
        ("malformed", "ApplicationCodeError: model of agent 'malformed': ValidationError"),
        ("misspelt", "instructions of agent 'misspelt': AttributeError: 'Customer' object has no attribute"),
        ("counting", "context of agent 'counting': ZeroDivisionError: division by zero"),
        ("dropped", "model of agent 'dropped': raised CancelledError: the pool is closed"),
        ("interrupted", "model of agent 'interrupted': KeyboardInterrupt"),
    ],
)
async def test_a_bug_is_told_after_three_attempts(served: Served, unique: str, agent: str, said: str) -> None:
    """Not after half an hour of silence: no repetition mends it."""
    result = await served.sessions.ask(unique, "hello", agent=agent, timeout=30)
    assert result.status is AskStatus.FAILED
    assert result.error is not None
    assert said in result.error
    assert {made for model in (KEYLESS, DROPPED, INTERRUPTED) for made in model.calls.values()} <= {3}
    assert ENDLESS.calls in {0, 3}


async def test_a_bug_in_a_hook_refuses_its_message_and_says_why(served: Served, unique: str) -> None:
    """Whoever wrote the hook finds it."""
    result = await served.sessions.ask(unique, "hello", agent="hooked", timeout=30)
    assert result.status is AskStatus.REFUSED
    assert result.error is not None
    assert "hook before_user_message of agent 'hooked': AttributeError" in result.error


@pytest.mark.parametrize("agent", ["busy", "odd"])
async def test_what_may_pass_is_tried_more_often(served: Served, unique: str, agent: str) -> None:
    """A provider that is away, and an exception that nobody knows."""
    result = await served.sessions.ask(unique, "hello", agent=agent, timeout=30)
    assert result.text == "at last"


async def failing_of(served: Served, session_id: str) -> tuple[FailingCall, ...]:
    """Calls of a session that have failed so far."""
    return (await served.sessions.session(session_id).get_status()).failing


@pytest.mark.usefixtures("patient_causes")
async def test_a_time_out_and_the_status_tell_the_last_failure(served: Served, unique: str) -> None:
    """With its activity, its attempt and the worker."""
    await served.sessions.send(unique, "hello", agent="away")
    async with asyncio.timeout(20):
        while max((each.attempt for each in await failing_of(served, unique)), default=0) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    with pytest.raises(TimeoutError) as caught:
        await served.sessions.ask(unique, "hello", agent="away", timeout=1)
    assert "helix.sessions.run_step fails, attempt" in str(caught.value)
    assert "ConnectionError: model of agent 'away': ConnectionError: connection refused" in str(caught.value)
    (failing,) = await failing_of(served, unique)
    assert failing.activity == "helix.sessions.run_step"
    assert failing.attempt >= 2
    assert failing.error.startswith("ConnectionError: model of agent 'away'")
    assert failing.worker


async def test_a_failing_call_is_told_with_the_age_of_its_first_attempt(served: Served, unique: str) -> None:
    """After so many attempts ``since 0 s`` says that nothing is wrong."""
    asking = asyncio.create_task(served.sessions.ask(unique, "hello", agent="away", timeout=60))
    attempts, times = set[int](), set[int]()
    async with asyncio.timeout(60):
        while len(attempts) < 2:
            with contextlib.suppress(SessionNotFoundError):
                for failing in (await served.sessions.session(unique).get_status()).failing:
                    attempts.add(failing.attempt)
                    times.add(failing.since)
            await asyncio.sleep(0.1)
    assert len(times) == 1
    assert 0 not in times
    assert (await asking).status is AskStatus.FAILED


async def test_a_models_budget_ends_its_attempts(served: Served, unique: str) -> None:
    """`model_schedule_to_close`: the last failure is told, not that time was up."""
    result = await served.sessions.ask(unique, "hello", agent="away", timeout=30)
    assert result.status is AskStatus.FAILED
    assert result.error is not None
    assert "ConnectionError" in result.error


async def test_the_model_gets_the_text_of_a_tools_exception(served: Served, unique: str) -> None:
    """It can mend its call by that; the text is bounded, as it is stored."""
    text = (await served.sessions.ask(unique, "hello", agent="finding", timeout=30)).text
    assert text is not None
    assert text.startswith("The tool failed: tool 'find': RuntimeError: no order 7; xxx")
    assert 500 < len(text) < 600


async def test_an_agent_may_hide_the_texts_of_its_tools_exceptions(served: Served, unique: str) -> None:
    """They may hold what the model, and its user, must not see."""
    result = await served.sessions.ask(unique, "hello", agent="reserved", timeout=30)
    assert result.text == "The tool failed: tool 'find': RuntimeError"


@pytest.mark.parametrize(
    ("agent", "said", "attempts"),
    [
        ("charging", f"tool 'charge': CardRefused: {'x' * 500}", 1),
        ("charging-reserved", "tool 'charge': CardRefused", 1),
        ("looking", f"tool 'lookup': SessionNotFoundError: {'x' * 500}", 1),
        ("looking-reserved", "tool 'lookup': SessionNotFoundError", 1),
        ("reaching", f"tool 'reach': StoreUnavailableError: {'x' * 500}", 2),
    ],
)
async def test_texts_of_typed_errors_are_cut_and_hidden_as_well(
    served: Served, unique: str, agent: str, said: str, attempts: int
) -> None:
    """A tool chooses type and attempts by what it raises, not how much of it is kept for ever."""
    LEFT.clear()
    result = await served.sessions.ask(unique, "hello", agent=agent, timeout=30)
    assert result.text == f"The tool failed: {said}"
    assert len(LEFT) == attempts
    events = (await served.client.get_workflow_handle(workflow_id(unique)).fetch_history()).events
    kept = b"".join(event.SerializeToString() for event in events)
    assert b"4111 1111" not in kept
    assert b"x" * 501 not in kept


async def test_the_text_of_a_models_typed_error_is_cut(served: Served, unique: str) -> None:
    """What a provider says may quote the conversation."""
    result = await served.sessions.ask(unique, "hello", agent="wordy", timeout=30)
    assert result.status is AskStatus.FAILED
    assert (result.error or "").startswith("WordyError: yyy")
    events = (await served.client.get_workflow_handle(workflow_id(unique)).fetch_history()).events
    kept = b"".join(event.SerializeToString() for event in events)
    assert b"y" * 501 not in kept
    assert b"zzz" not in kept


async def test_a_bug_in_a_tool_is_tried_three_times(served: Served, unique: str) -> None:
    """However many attempts the tool has for what may pass."""
    result = await served.sessions.ask(unique, "hello", agent="bugged", timeout=30)
    assert result.text == "The tool failed: tool 'misspell': KeyError: 'c'"
    assert len(MISSPELT) == 3


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        ("leaving", "tool 'leave': SystemExit: 3"),
        ("leaving-thread", "tool 'leave_thread': SystemExit: no such order"),
        ("dropping", "tool 'drop': raised CancelledError: the pool is closed"),
        ("dropping-reserved", "tool 'drop': raised CancelledError"),
        ("interrupting", "tool 'interrupt_thread': KeyboardInterrupt"),
    ],
)
async def test_a_tool_that_exits_or_cancels_itself_is_named(
    served: Served, unique: str, agent: str, said: str
) -> None:
    """It is a bug like another: it was tried at all attempts, and told as ``Application error`` of nobody."""
    LEFT.clear()
    result = await served.sessions.ask(unique, "hello", agent=agent, timeout=30)
    assert result.text == f"The tool failed: {said}"
    assert len(LEFT) == 3


async def test_a_hook_that_exits_refuses_its_message(served: Served, unique: str) -> None:
    """As one with any other bug."""
    result = await served.sessions.ask(unique, "hello", agent="leaving-hook", timeout=30)
    assert result.error is not None
    assert "hook before_user_message of agent 'leaving-hook': SystemExit: 4" in result.error


async def test_a_tool_that_takes_too_long_is_named_with_its_time(served: Served, unique: str) -> None:
    """Whoever reads it finds the number to raise."""
    result = await served.sessions.ask(unique, "hello", agent="dawdling", timeout=30)
    assert result.text == "The tool failed: tool 'dawdle': no result within 1 s"


# -- workers that are missing


@pytest.mark.usefixtures("patient_causes")
async def test_a_queue_without_workers_is_named(
    served: Served, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that was not started, or listens elsewhere: the queue that has one is named, too."""
    monkeypatch.setattr(_updates, "_QUERY_SECONDS", 1.0)
    nobody = SessionClient(served.client, task_queue=unique)
    with pytest.raises(TimeoutError) as caught:
        await nobody.ask(unique, "hello", agent="well", timeout=2)
    assert f"no worker polls task queue '{unique}' in namespace 'default'" in str(caught.value)
    with pytest.raises(NoWorkerError, match=f"no worker polls task queue '{unique}'"):
        await nobody.session(unique).get_status()


@pytest.mark.usefixtures("patient_causes")
async def test_a_session_that_runs_on_another_queue_is_found_there(served: Served, unique: str) -> None:
    """Its run stays on the queue on which it was started."""
    await left_unserved(SessionClient(served.client, task_queue=unique), unique)
    with pytest.raises(TimeoutError) as caught:
        await served.sessions.ask(unique, "hello", agent="well", timeout=2)
    assert f"no worker polls task queue '{unique}'" in str(caught.value)
    queue = served.plugin.settings.task_queue
    assert f"workers poll task queue '{queue}' there" in str(caught.value)
    assert f"was started there, not on task queue '{queue}' of this client" in str(caught.value)
    assert "terminate the run" in str(caught.value)
    await served.client.get_workflow_handle(workflow_id(unique)).terminate()
    assert (await served.sessions.ask(unique, "hello", agent="well", timeout=30)).text == "at once"


async def test_a_read_that_nobody_serves_ends(
    served: Served, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no time-out of its own, and waited for ever."""
    monkeypatch.setattr(_diagnosis, "_UNSERVED", 1.0)
    monkeypatch.setattr(_diagnosis, "_UNSERVED_LOOK", 0.5)
    nobody = SessionClient(served.client, task_queue=unique)
    with pytest.raises(NoWorkerError, match=f"no worker polls task queue '{unique}'"):
        await nobody.session(unique).list_messages()


async def test_a_worker_that_is_gone_is_told_of_soon(
    served: Served, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server remembers whom it saw for minutes; what nobody takes says more."""
    monkeypatch.setattr(_diagnosis, "_UNSERVED", 1.0)
    settings = served.plugin.settings.model_copy(update={"task_queue": unique})
    async with session_worker(settings, [WELL], drain=1.0) as short:
        assert (await short.sessions.ask(unique, "hello", agent="well", timeout=30)).text == "at once"
    session = SessionClient(served.client, task_queue=unique).session(unique)
    for told in (session.get_status, session.list_messages):
        with pytest.raises(NoWorkerError, match=f"no worker has polled task queue '{unique}'"):
            await told()


async def test_the_log_names_the_missing_worker_before_the_call_that_failed_at_it(
    served: Served, unique: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker of the newest failure is the one that is gone."""
    # More than one: on a busy machine the session has not begun when somebody looks first.
    for look in ("_FIRST_LOOK", "_NEXT_LOOK"):
        monkeypatch.setattr(_diagnosis, look, 0.5)
    call = FailingCall(activity="slow_lookup", attempt=2, error="TimeoutError: activity Heartbeat timeout")
    monkeypatch.setattr(Diagnosis, "find_failing_calls", AsyncMock(return_value=(call,)))
    with pytest.raises(TimeoutError):
        await SessionClient(served.client, task_queue=unique).ask(unique, "hello", agent="well", timeout=4)
    assert f": no worker polls task queue '{unique}'" in caplog.text
    assert "slow_lookup fails, attempt 2: the worker gave no sign of life" in caplog.text


async def test_a_namespace_that_is_not_there_is_told(served: Served, unique: str) -> None:
    """A misspelt setting."""
    settings = served.plugin.settings
    client = await Client.connect(
        settings.temporal_address, namespace=unique, plugins=[HelixPlugin(settings)], lazy=True
    )
    sessions = SessionClient(client, task_queue=settings.task_queue)
    with pytest.raises(InvalidConfigError, match=f"namespace '{unique}' is not known"):
        await sessions.ask(unique, "hello", agent="well", timeout=10)
    with pytest.raises(InvalidConfigError, match=f"namespace '{unique}' is not known"):
        await sessions.session(unique).list_messages()
