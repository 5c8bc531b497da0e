"""What fails, fails as itself: the asker is told, the thread is safe, and what can go on goes on."""

import asyncio
import uuid
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError

from helix_temporal.agents import Agent, ModelRequest, ModelResponse, ScriptedModel
from helix_temporal.errors import (
    ApplicationCodeError,
    SessionFailedError,
    SessionInterruptedError,
    SessionTerminatedError,
)
from helix_temporal.models.sessions import AskStatus
from helix_temporal.settings import Settings
from helix_temporal.stores.protocols.threads import OpenThread
from helix_temporal.testing.serving import session_worker
from helix_temporal.workflows import SessionWorkflow
from tests.workflows._desk import Desk, Gate, calls
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")


def permanent(request: ModelRequest) -> str:
    raise ApplicationError("the key is wrong", type="AuthenticationError", non_retryable=True)


async def test_a_permanent_failure_of_the_model_is_told_with_its_own_type(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """Whoever asks must know that asking again will not help."""
    desk.scripts[sid] = permanent
    result = await stand.sessions.ask(sid, "hello", agent="main", timeout=20)
    assert result.status is AskStatus.FAILED
    assert result.error == "AuthenticationError: the key is wrong"
    assert not result.in_thread


async def test_a_permanent_failure_fails_the_session_with_its_own_type(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """Monitoring looks at types of errors."""
    desk.scripts[sid] = permanent
    await stand.sessions.ask(sid, "hello", agent="main", timeout=20)
    with pytest.raises(SessionFailedError) as caught:
        await stand.sessions.session(sid).result()
    assert str(caught.value).startswith(
        f"session {sid!r}: its run failed: AuthenticationError: the key is wrong; mend that, and ask again"
    )
    assert caught.value.facts == {"type": "AuthenticationError"}
    assert isinstance(caught.value.__cause__, WorkflowFailureError)
    status = await stand.sessions.session(sid).get_status()
    assert (status.status, status.exit_reason) == ("failed", "failed")


async def test_a_bug_in_a_model_is_what_the_session_failed_by(stand: Stand, desk: Desk, sid: str) -> None:
    """`result` raised the SDK's own error, whose text is that a workflow failed."""

    def script(_: ModelRequest) -> str:
        raise KeyError("choices")

    desk.scripts[sid] = script
    asked = await stand.sessions.ask(sid, "hello", agent="main", timeout=30)
    with pytest.raises(SessionFailedError, match=r"its run failed: .*KeyError: 'choices'") as caught:
        await stand.sessions.session(sid).result()
    assert asked.error is not None
    assert asked.error in str(caught.value)


@pytest.mark.parametrize(
    ("end", "error", "said"),
    [
        ("cancel", SessionInterruptedError, "was cancelled"),
        ("terminate", SessionTerminatedError, "was terminated"),
    ],
)
async def test_a_run_that_somebody_ended_has_no_result(
    stand: Stand, sid: str, end: str, error: type[Exception], said: str
) -> None:
    """By an error of the pack's, as everywhere."""
    await stand.sessions.ask(sid, "hello", agent="main", timeout=30)
    await getattr(stand.handle(sid), end)()
    with pytest.raises(error, match=f"^session {sid!r}: its run {said}; ask again to start the next one"):
        await stand.sessions.session(sid).result()


async def test_a_failed_session_has_archived_its_finished_turns_and_starts_again(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """A wrong key costs a turn, not the conversation."""
    await stand.sessions.ask(sid, "one", agent="main")
    desk.scripts[sid] = permanent
    await stand.sessions.ask(sid, "two", timeout=20)
    with pytest.raises(SessionFailedError):
        await stand.sessions.session(sid).result()
    assert not (await stand.sessions.session(sid).describe_thread()).hot
    desk.scripts.pop(sid)
    assert (await stand.sessions.ask(sid, "three", agent="main")).text == "3: three"


async def test_a_passing_failure_of_the_model_is_retried(stand: Stand, desk: Desk, sid: str) -> None:
    """Overloaded providers are Temporal's daily bread."""
    failures = iter([ConnectionError(), ConnectionError()])

    def script(request: ModelRequest) -> str:
        for failure in failures:
            raise failure
        return "there"

    desk.scripts[sid] = script
    assert (await stand.sessions.ask(sid, "hello", agent="main", timeout=30)).text == "there"


async def test_messages_that_wait_beside_a_failing_turn_are_served_by_the_next_run(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """They had nothing to do with it."""
    gate = Gate()

    async def script(request: ModelRequest) -> str:
        if request.messages[-1].text == "poison":
            await gate.passing()
            permanent(request)
        return "fine"

    desk.scripts[sid] = script
    poison = asyncio.create_task(stand.sessions.ask(sid, "poison", agent="main", timeout=20))
    await gate.reached.wait()
    beside = asyncio.create_task(stand.sessions.ask(sid, "harmless", agent="main", timeout=20))
    while (await stand.sessions.session(sid).get_status()).waiting < 1:  # noqa: ASYNC110 (another process tells)
        await asyncio.sleep(0.01)
    gate.opened.set()
    assert (await poison).status is AskStatus.FAILED
    assert (await beside).text == "fine"


async def test_a_turn_that_fails_after_a_step_is_not_said_to_be_in_the_thread(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """What stands of it is cut at the next open, so nobody may count on it; asked again, it runs anew."""

    def script(request: ModelRequest) -> ModelResponse:
        if request.messages[-1].role == "tool":
            permanent(request)
        return calls("x")

    desk.scripts[sid] = script
    result = await stand.sessions.ask(sid, "hello", agent="main", message_id="m-1", timeout=20)
    assert (result.status, result.in_thread) == (AskStatus.FAILED, False)
    desk.scripts.pop(sid)
    again = await stand.sessions.ask(sid, "hello", agent="main", message_id="m-1", timeout=20)
    assert again.text == "1: hello"
    assert await stand.texts(sid) == ["hello", "1: hello"]


async def test_an_agent_that_no_worker_knows_is_a_clear_failure(stand: Stand, sid: str) -> None:
    """Once other workers had their time to serve it; see `test_roll_out`."""
    result = await stand.sessions.ask(sid, "hello", agent="nobody", timeout=20)
    assert result.status is AskStatus.FAILED
    assert result.error is not None
    assert result.error.startswith("AgentNotServedError: agent 'nobody' is not known")


async def test_a_session_whose_thread_another_took_over_is_fenced(stand: Stand, desk: Desk, sid: str) -> None:
    """One writer: the older execution ends and touches nothing."""
    await stand.sessions.ask(sid, "one", agent="main")
    threads = stand.served.plugin.backends.threads
    epoch = (await threads.read_facts(sid)).epoch + 10_000_000
    await threads.open(OpenThread(sid, epoch, owner="somebody-else"))
    result = await stand.sessions.ask(sid, "two", timeout=20)
    assert result.status is AskStatus.FAILED
    assert result.error is not None
    assert result.error.startswith("FencedError")
    with pytest.raises(SessionFailedError):
        await stand.sessions.session(sid).result()
    facts = await threads.read_facts(sid)
    assert (facts.epoch, facts.owner, facts.head.position, facts.closed) == (epoch, "somebody-else", 2, False)


async def test_two_sessions_on_one_thread_do_not_interleave(stand: Stand, sid: str) -> None:
    """The later one has it; the earlier one is refused with a clear error."""
    thread_id = f"thread-{uuid.uuid4().hex[:8]}"
    await stand.sessions.ask(f"{sid}-a", "a1", agent="main", thread_id=thread_id)
    await stand.sessions.ask(f"{sid}-b", "b1", agent="main", thread_id=thread_id)
    refused = await stand.sessions.ask(f"{sid}-a", "a2", thread_id=thread_id, timeout=30)
    assert refused.status is AskStatus.FAILED
    assert refused.error is not None
    assert refused.error.startswith("FencedError")
    assert await stand.texts(thread_id) == ["a1", "1: a1", "b1", "3: b1"]
    await stand.finish(f"{sid}-b")


async def test_a_session_that_is_started_with_nonsense_fails_at_once(stand: Stand, sid: str) -> None:
    """A payload that is no session input must not be retried for ever."""
    handle = await stand.served.client.start_workflow(
        "helix.session",
        {"session_id": "", "agent": "main"},
        id=f"nonsense-{sid}",
        task_queue=stand.served.plugin.settings.task_queue,
        execution_timeout=timedelta(seconds=30),
    )
    with pytest.raises(WorkflowFailureError) as caught:
        await asyncio.wait_for(handle.result(), 10)
    assert isinstance(caught.value.cause, ApplicationError)


async def test_our_errors_fail_workflows_rather_than_their_tasks() -> None:
    """Otherwise a typed error raised in workflow code is retried for ever."""
    from helix_temporal.errors import HelixError
    from helix_temporal.plugin import HelixPlugin

    config = dict(HelixPlugin().configure_replayer({"workflows": []}))
    assert config["workflow_failure_exception_types"] == [HelixError]
    assert SessionWorkflow in HelixPlugin().workflows  # type: ignore[operator]


def broken(_: Any) -> Any:
    raise KeyError("nmae")


def refuses(_: Any) -> Any:
    raise ApplicationError("not these", type="Refused", non_retryable=True)


@pytest.mark.parametrize(
    ("transform", "said"), [("broken", "KeyError: 'nmae'"), ("refuses", "Refused: not these")]
)
async def test_a_fork_whose_transform_fails_says_what_it_failed_by(
    temporal_address: str, unique: str, transform: str, said: str
) -> None:
    """An error that the transform chose itself was the SDK's bare one."""
    settings = Settings(temporal_address=temporal_address, name=unique)
    agent = Agent(name="main", model=ScriptedModel(["hello"]))
    plugin = {"transforms": {"broken": broken, "refuses": refuses}}
    async with session_worker(settings, [agent], plugin=plugin, drain=1.0) as served:
        await served.sessions.ask("s", "hi", agent="main", timeout=30)
        with pytest.raises(ApplicationCodeError, match=said):
            await served.sessions.session("s").fork("copy", transform=transform)
