"""Activities ``helix.sessions.*`` on Redis and S3: repeated, they give the first answer and cost nothing."""

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from helix_temporal.agents import Agent, AgentRegistry, ModelRequest, ModelResponse
from helix_temporal.backends import Backends
from helix_temporal.errors import SessionNotFoundError, ThreadNotFoundError
from helix_temporal.models.messages import ToolCall
from helix_temporal.models.sessions import ForkFrom, ReopenHeads, TakenBack, UserMessage
from helix_temporal.models.steps import (
    EndTurnInput,
    LoadAnswerInput,
    OpenSessionInput,
    OpenSessionResult,
    PutTextInput,
    RunStepInput,
    SaveValuesInput,
    StepInput,
)
from helix_temporal.models.stored_messages import EMPTY, Head
from helix_temporal.session.record import parse_record
from helix_temporal.settings import Settings
from helix_temporal.stores.protocols.threads import ReadPage
from helix_temporal.stores.sessions import RowSessions

R = TypeVar("R")


class Counting:
    """A model that asks for a tool when it is told to, and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Answer, and count."""
        self.calls += 1
        text = request.messages[-1].text
        if text == "tool":
            return ModelResponse(tool_calls=(ToolCall(id="c", name="look"),))
        return ModelResponse(f"{self.calls}: {text}")


class Caller:
    """Runs session activities as Temporal does."""

    def __init__(self, backends: Backends) -> None:
        self.model = Counting()
        registry = AgentRegistry(
            [
                Agent(name="agent", model=self.model),
                Agent(name="pinned", model=self.model, instructions="be kind", instructions_mode="pinned"),
            ]
        )
        self.threads = backends.threads
        self.sessions = backends.make_session_activities(registry)
        self.scheduled, self.attempts = datetime.now(UTC), (1, 2)

    async def twice(self, function: Callable[[Any], Awaitable[R]], request: Any) -> tuple[R, R]:
        """The answers of two attempts of one activity."""
        self.scheduled += timedelta(milliseconds=5)
        found = []
        for attempt in self.attempts:
            environment = ActivityEnvironment()
            environment.info = dataclasses.replace(
                environment.info, attempt=attempt, scheduled_time=self.scheduled
            )
            found.append(await environment.run(function, request))
        return found[0], found[1]

    async def open(self, session_id: str = "s", **fields: Any) -> tuple[OpenSessionResult, OpenSessionResult]:
        """Two attempts of one open."""
        request = OpenSessionInput.model_validate(
            {"session_id": session_id, "thread_id": session_id, "agent": "agent", "owner": "run"} | fields
        )
        return await self.twice(self.sessions.open, request)

    async def ids(self, session_id: str = "s") -> list[str]:
        """Ids of all messages."""
        page = await self.threads.read(ReadPage(session_id, limit=100, committed_only=False))
        return [message.id for message in page.messages]


def step(opened: OpenSessionResult, text: str, head: Head | None = None) -> RunStepInput:
    return RunStepInput(
        session_id="s",
        agent="agent",
        epoch=opened.handle.epoch,
        head=head or opened.handle.head,
        inputs=(StepInput(id=f"m-{text}", text=text),),
    )


@pytest.fixture
async def call(settings: Settings) -> AsyncIterator[Caller]:
    backends = Backends(settings)
    yield Caller(backends)
    await backends.close()


async def test_open_new(call: Caller) -> None:
    """Both attempts have created it."""
    first, second = await call.open(mode="new")
    assert first == second
    assert first.created


async def test_open_fork(call: Caller) -> None:
    """One copy, open at its end, with the state of its source."""
    opened, _ = await call.open()
    await call.twice(call.sessions.run_step, step(opened, "one"))
    first, second = await call.open("fork", mode="fork", fork_from=ForkFrom(thread_id="s"))
    assert first == second
    assert (first.created, first.handle.head.position) == (True, 2)
    assert await call.ids("fork") == await call.ids("s")


async def test_turns_are_taken_back_once(call: Caller) -> None:
    """The second attempt finds the thread cut and the request remembered; nothing that followed goes."""
    opened, _ = await call.open()
    await call.twice(call.sessions.run_step, step(opened, "one"))
    record = TakenBack(id="op", to=EMPTY, messages=(UserMessage(id="op.0", text="one"),))
    first, second = await call.open(
        mode="continue", rewind_to=EMPTY, take_back=record, known_epoch=opened.handle.epoch
    )
    assert first == second
    assert first.handle.head == EMPTY
    # The slice that remembers it is not archived yet.
    assert not first.handle.archived
    kept = parse_record((await call.threads.read_facts("s")).slice).taken_back
    assert [(each.id, each.epoch) for each in kept] == [("op", first.handle.epoch)]


async def test_a_step_is_paid_for_once(call: Caller) -> None:
    """The second attempt finds the answer of the first and asks no model."""
    opened, _ = await call.open()
    first, second = await call.twice(call.sessions.run_step, step(opened, "one"))
    assert first == second
    assert call.model.calls == 1
    assert first.text == "1: one"


async def test_a_late_attempt_of_an_older_step_gets_its_own_answer(call: Caller) -> None:
    """Also when its turn has gone on since."""
    opened, _ = await call.open()
    request = step(opened, "tool")
    first, _ = await call.twice(call.sessions.run_step, request)
    seen = StepInput(id="r", call="c", name="look", text="tool")
    second = request.model_copy(update={"head": first.head, "inputs": (seen,)})
    await call.twice(call.sessions.run_step, second)
    late, _ = await call.twice(call.sessions.run_step, request)
    assert (late.head, late.calls) == (first.head, first.calls)
    assert len(await call.ids()) == 4
    assert call.model.calls == 2


async def test_a_step_that_finished_turns_have_followed_is_gone_on_from(call: Caller) -> None:
    """Only a workflow that was reset asks for it: it opens again, at the end of what is committed."""
    opened, _ = await call.open()
    request = step(opened, "one")
    first, _ = await call.twice(call.sessions.run_step, request)
    last, _ = await call.twice(call.sessions.run_step, step(opened, "two", first.head))
    with pytest.raises(ApplicationError) as caught:
        await call.twice(call.sessions.run_step, request)
    assert caught.value.type == "HeadMovedError"
    again, _ = await call.open(
        mode="continue",
        reopen=ReopenHeads(head=first.head, turn_start=EMPTY),
        known_epoch=opened.handle.epoch,
    )
    assert again.handle.head == last.head
    assert call.model.calls == 2


async def test_end_turn(call: Caller) -> None:
    """Results of tools are committed once, without a model."""
    opened, _ = await call.open()
    asked, _ = await call.twice(call.sessions.run_step, step(opened, "tool"))
    request = EndTurnInput(
        session_id="s",
        epoch=opened.handle.epoch,
        head=asked.head,
        inputs=(StepInput(id="r", call="c", name="look", text="seen"),),
    )
    first, second = await call.twice(call.sessions.end_turn, request)
    assert first == second
    assert first.head == Head(position=3, last_id="r")
    assert (await call.threads.read_facts("s")).committed == 3
    assert call.model.calls == 1


async def test_save(call: Caller) -> None:
    """Values are saved once; the version says so."""
    opened, _ = await call.open()
    request = SaveValuesInput(
        thread_id="s", epoch=opened.handle.epoch, values={"a": 1}, session_id="s", status="completed"
    )
    first, second = await call.twice(call.sessions.save, request)
    assert first == second
    assert (await call.open(mode="continue"))[0].values == {"a": 1}


async def test_put_text_and_use_it(call: Caller) -> None:
    """One name for the same text; the step that takes it finds it under both attempts."""
    opened, _ = await call.open()
    request = PutTextInput(thread_id="s", message_id="m", text="long" * 10_000)
    first, second = await call.twice(call.sessions.put_text, request)
    assert first == second
    by_reference = step(opened, "x").model_copy(update={"inputs": (StepInput(id="m", ref=first.ref),)})
    ran = await call.twice(call.sessions.run_step, by_reference)
    assert ran[0] == ran[1]
    assert call.model.calls == 1


async def test_load_answer(call: Caller) -> None:
    """A remembered answer is read where it stands."""
    opened, _ = await call.open()
    ran, _ = await call.twice(call.sessions.run_step, step(opened, "one"))
    where = {"position": ran.head.position - 1, "id": ran.head.last_id}
    first, second = await call.twice(
        call.sessions.load_answer, LoadAnswerInput.model_validate({"thread_id": "s", "answer": where})
    )
    assert first == second
    assert first.text == "1: one"


async def test_pinned_instructions_are_those_of_the_creation(call: Caller) -> None:
    """A second open under another prompt does not change them."""
    first, second = await call.open(agent="pinned")
    assert first == second
    assert b"be kind" in (await call.threads.read_facts("s")).slice


@pytest.mark.parametrize(("attempt", "for_good"), [(1, False), (150, True)])
async def test_an_agent_that_is_not_there_is_looked_for_at_other_workers_for_a_bounded_time(
    call: Caller, attempt: int, for_good: bool
) -> None:
    """No store is touched.  Attempts are at most five seconds apart; time without workers does not count."""
    call.scheduled -= timedelta(hours=1)
    call.attempts = (attempt, attempt + 1)
    with pytest.raises(ApplicationError, match=r"agent 'nobody' is not known .*; it knows: agent") as caught:
        await call.open(agent="nobody")
    assert (caught.value.type, caught.value.non_retryable) == ("AgentNotServedError", for_good)
    with pytest.raises(ThreadNotFoundError):
        await call.threads.read_facts("s")


async def test_a_state_that_is_lost_again_and_again_is_no_permanent_failure(
    call: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis is wiped just when the state made again is used: Temporal tries on, nobody's ask fails."""
    opened, _ = await call.open()

    async def lost(*_: object, **__: object) -> None:
        raise SessionNotFoundError("Session not found: it was wiped")

    with monkeypatch.context() as patched:
        patched.setattr(RowSessions, "save_state_and_promote_staging", lost)
        with pytest.raises(ApplicationError) as caught:
            await call.twice(call.sessions.run_step, step(opened, "hello"))
    assert (caught.value.type, caught.value.non_retryable) == ("StoreUnavailableError", False)
    first, _ = await call.twice(call.sessions.run_step, step(opened, "hello"))
    assert first.text == "1: hello"
    assert call.model.calls == 1
