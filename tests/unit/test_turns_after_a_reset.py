"""Turns that a workflow comes to again after a reset, while the thread knows more of them than it does."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from helix_temporal.activities import Payloads, SessionActivities, Stepper, ToolRunner
from helix_temporal.agents import Agent, AgentRegistry, ModelResponse, ScriptedModel, client_tool, tool
from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.coldtier import TieredThreads
from helix_temporal.errors import FencedError, HeadMovedError
from helix_temporal.models.agents import ToolFacts
from helix_temporal.models.messages import ToolCall
from helix_temporal.models.sessions import CallPolicy, ExitReason, SuspendedTurn, UserMessage
from helix_temporal.models.steps import (
    EndTurnInput,
    OpenSessionInput,
    OpenSessionResult,
    RunStepInput,
    RunStepResult,
    StepInput,
    ToolInput,
    ToolResult,
)
from helix_temporal.models.waiting import SubmitInput
from helix_temporal.session.pending_calls import PendingCalls
from helix_temporal.session.record import SessionRecord, parse_record
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.memory.payloads import MemoryPayloads
from helix_temporal.stores.protocols.threads import ReadPage, ThreadStore
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.workflows.opening import CurrentThread
from helix_temporal.workflows.turn import Turn, TurnResult


class ResetError(Exception):
    """An operator resets the workflow: what it has under way goes no further."""


@tool
async def look(what: str) -> str:
    """Look."""
    return f"saw {what}" * (1_000 if what == "much" else 1)


@client_tool
async def sign(what: str) -> str:
    """Sign."""
    raise AssertionError(what)


def asks(name: str, what: str) -> ModelResponse:
    return ModelResponse(tool_calls=(ToolCall(id="c", name=name, arguments={"what": what}),))


BOTH = ModelResponse(tool_calls=(*asks("sign", "this").tool_calls, *asks("look", "here").tool_calls))


@dataclass
class Here:
    """`Calls` that run the real activities in this process.

    Attributes:
        resets: At a call of a tool with this argument.
        runs: Calls of tools, by their argument.
        holds_steps: The workflow is reset at the next step, whose activity is still on its way.
        held: Steps on their way.
    """

    threads: ThreadStore
    answers: Sequence[ModelResponse]
    resets: str | None = None
    opens: int = 0
    names: int = 0
    runs: list[str] = field(default_factory=list)
    holds_steps: bool = False
    held: list[RunStepInput] = field(default_factory=list)
    began: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __post_init__(self) -> None:
        answers = iter(self.answers)
        self.model = ScriptedModel(lambda _: next(answers))
        self.agent = Agent(name="a", model=self.model, tools=[look, sign])
        agents, payloads = AgentRegistry([self.agent]), Payloads(MemoryPayloads())
        self.stepper = Stepper(self.threads, agents, payloads)
        self.sessions = SessionActivities(self.threads, agents, self.stepper, CallPolicy(), payloads)
        self.tools = ToolRunner(self.threads, payloads)

    # -- `Calls`

    async def open(self, request: OpenSessionInput) -> OpenSessionResult:
        """The activity, scheduled a second after the one before."""
        self.opens += 1
        environment = ActivityEnvironment()
        scheduled = self.began + timedelta(seconds=self.opens)
        environment.info = replace(environment.info, scheduled_time=scheduled)
        opened: OpenSessionResult = await environment.run(self.sessions.open, request)
        return opened

    async def run_step(self, request: RunStepInput) -> RunStepResult:
        """The activity."""
        if self.holds_steps:
            self.held.append(request)
            raise ResetError
        return await self.stepper.run(request)

    async def end_turn(self, request: EndTurnInput) -> RunStepResult:
        """The activity."""
        return await self.stepper.end_turn(request)

    async def run_tool(self, facts: ToolFacts, request: ToolInput) -> ToolResult:
        """The tool, unless the workflow is reset there."""
        if request.call.arguments["what"] == self.resets:
            raise ResetError
        self.runs.append(str(request.call.arguments["what"]))
        return await self.tools.run(look, request)

    def new_id(self) -> str:
        """One that is unique here."""
        self.names += 1
        return f"name-{self.names}"

    def patched(self, _change: str, /) -> bool:
        """Nothing is replayed."""
        return True

    # -- an execution, and what it leaves

    async def begin(self, owner: str = "o") -> tuple[CurrentThread, OpenSessionResult]:
        """An execution opens the session."""
        request = OpenSessionInput(session_id="s", thread_id="s", agent="a", owner=owner)
        opened = await self.open(request)
        return CurrentThread(request, opened.handle, opened.facts), opened

    def turn(self, thread: CurrentThread, waits: PendingCalls | None = None) -> Turn:
        """One turn of it."""
        calls: Any = self
        return Turn(calls, thread, number=1, max_steps=5, pending_calls=waits)

    async def ask(self, thread: CurrentThread, text: str) -> TurnResult:
        """One turn with this message."""
        return await self.turn(thread).run([UserMessage(id=text, text=text)])

    async def state(self) -> SessionRecord:
        """What is stored with the thread."""
        return parse_record((await self.threads.read_facts("s")).slice)

    async def ids(self) -> list[str]:
        """Of all finished messages."""
        page = await self.threads.read(ReadPage("s", limit=100))
        return [message.id for message in page.messages]


def after(thread: CurrentThread) -> CurrentThread:
    """What the workflow knows that was reset to this moment."""
    return CurrentThread(thread.request, thread.handle, thread.facts)


@pytest.fixture(params=["alone", "tiered"])
def threads(request: pytest.FixtureRequest) -> ThreadStore:
    if request.param == "alone":
        return HotThreads(MemoryThreads())
    return TieredThreads(MemoryThreads(), MemoryBlobs())


async def test_a_turn_that_is_interrupted_where_it_had_gone_on_is_counted(threads: ThreadStore) -> None:
    """Its results stand already, and behind them a step of which the workflow knows nothing any more."""
    here = Here(threads, [asks("look", "one"), asks("look", "two"), ModelResponse("done")], resets="two")
    before, _ = await here.begin()
    thread = after(before)
    with pytest.raises(ResetError):
        await here.ask(thread, "go")
    thread = after(before)
    turn = here.turn(thread)
    turn.interrupted = True
    result = await turn.run([UserMessage(id="go", text="go")])
    assert (result.exit_reason, result.in_thread) == (ExitReason.INTERRUPTED, True)
    assert (await here.state()).turns == 1
    assert (await here.ask(thread, "next")).text == "done"
    state, facts = await here.state(), await threads.read_facts("s")
    assert (state.turns, facts.committed, len(await here.ids())) == (2, 5, 5)
    assert here.model.calls == 3


async def test_a_turn_that_waited_is_not_waited_with_again_where_it_had_gone_on(threads: ThreadStore) -> None:
    """Who has answered is not asked again, and a later execution finds all that was answered."""
    here = Here(threads, [BOTH, asks("look", "two"), ModelResponse("done")], resets="two")
    before, _ = await here.begin()
    thread, waits = after(before), PendingCalls(lambda: 0)
    first = await here.turn(thread, waits).run([UserMessage(id="go", text="go")])
    assert (first.exit_reason, waits.suspended and len(waits.suspended.waiting)) == (ExitReason.SUSPENDED, 1)
    assert waits.suspended
    call = waits.list_pending()[0].id
    assert waits.submit_answer(SubmitInput(call=call, text="signed", by="me")).status == "submitted"
    with pytest.raises(ResetError):
        await here.turn(thread, waits).resume(
            waits.suspended.model_copy(update={"outcomes": waits.list_outcomes()})
        )
    here.resets, runs = None, list(here.runs)
    waits, told = PendingCalls(lambda: 0), list[str]()
    waits.on_step_waits = lambda: told.append("asked again")
    result = await here.turn(after(before), waits).run([UserMessage(id="go", text="go")])
    assert (result.exit_reason, result.text, told) == (ExitReason.COMPLETED, "done", [])
    assert here.runs == [*runs, "two"]
    assert waits.submit_answer(SubmitInput(call=call, text="again")).status == "already_completed"
    assert (here.model.calls, (await here.state()).turns, len(await here.ids())) == (3, 1, 7)


async def waiting(here: Here) -> tuple[CurrentThread, PendingCalls]:
    """A turn whose first step waits for somebody."""
    thread, waits = (await here.begin())[0], PendingCalls(lambda: 0)
    first = await here.turn(thread, waits).run([UserMessage(id="go", text="go")])
    assert first.exit_reason is ExitReason.SUSPENDED
    return thread, waits


def signed(waits: PendingCalls) -> SuspendedTurn:
    """The turn that waits, as somebody has answered it."""
    assert waits.suspended is not None
    assert (
        waits.submit_answer(SubmitInput(call=waits.list_pending()[0].id, text="signed")).status == "submitted"
    )
    return waits.suspended.model_copy(update={"outcomes": waits.list_outcomes()})


def was_reset(
    thread: CurrentThread, waits: PendingCalls
) -> tuple[CurrentThread, PendingCalls, SuspendedTurn]:
    """What the workflow knows that was reset to where its turn waits."""
    suspended, again = waits.suspended, PendingCalls(lambda: 0)
    assert suspended is not None
    again.begin_wait(suspended)
    return replace(after(thread), seed_before=None), again, suspended


async def test_a_step_that_came_late_is_found_behind_a_turn_that_waits(threads: ThreadStore) -> None:
    """Nobody is asked again, and the next open would have cut a turn whose tools have run."""
    here = Here(threads, [BOTH, asks("look", "two"), ModelResponse("done")], resets="two")
    before, waits = await waiting(here)
    thread, again, suspended = was_reset(before, waits)
    with pytest.raises(ResetError):
        await here.turn(before, waits).resume(signed(waits))
    here.resets = None
    result = await here.turn(thread, again).resume(suspended)
    assert (result.exit_reason, result.text, again.suspended) == (ExitReason.COMPLETED, "done", None)
    assert (here.runs, here.model.calls) == (["here", "two"], 3)
    assert ((await here.state()).turns, len(await here.ids()), result.steps) == (1, 7, 3)


async def test_a_step_of_before_the_reset_comes_too_late(threads: ThreadStore) -> None:
    """The thread was opened again: the step would stand behind a turn that waits, which is cut some day."""
    here = Here(threads, [BOTH, ModelResponse("done")])
    before, waits = await waiting(here)
    thread, again, suspended = was_reset(before, waits)
    here.holds_steps = True
    with pytest.raises(ResetError):
        await here.turn(before, waits).resume(signed(waits))
    here.holds_steps = False
    result = await here.turn(thread, again).resume(suspended)
    assert result.exit_reason is ExitReason.SUSPENDED
    assert again.suspended is not None
    assert again.suspended.head == suspended.head
    with pytest.raises(FencedError):
        await here.run_step(here.held[0])
    assert (await here.turn(thread, again).resume(signed(again))).exit_reason is ExitReason.COMPLETED
    assert (await here.state()).turns == 1


async def test_the_end_of_a_turn_is_found_where_the_hot_store_went_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Archived, its payloads are gone: tried again on the older copy, it would want them for ever."""
    hot = MemoryThreads()
    here = Here(TieredThreads(hot, MemoryBlobs()), [asks("look", "much")])
    thread, turn_end = (await here.begin())[0], here.stepper.end_turn
    older = hot.backup()

    async def lost_on_the_way(request: EndTurnInput) -> RunStepResult:
        await turn_end(request)
        hot.restore(older)
        monkeypatch.setattr(here.stepper, "end_turn", turn_end)
        return await turn_end(request)

    monkeypatch.setattr(here.stepper, "end_turn", lost_on_the_way)
    turn = here.turn(thread)
    turn.interrupted = True
    result = await turn.run([UserMessage(id="go", text="go")])
    assert (result.exit_reason, len(await here.ids())) == (ExitReason.INTERRUPTED, 3)
    assert (here.model.calls, len(here.runs), (await here.state()).turns) == (1, 1, 1)


async def test_a_step_under_way_at_the_reset_is_looked_for_in_the_archive() -> None:
    """The new run makes it for the first time; Redis had gone back to an older copy just before."""
    hot = MemoryThreads()
    here = Here(TieredThreads(hot, MemoryBlobs()), [ModelResponse("first"), ModelResponse("paid again")])
    thread, older = (await here.begin())[0], hot.backup()
    request = RunStepInput(
        session_id="s",
        agent="a",
        epoch=thread.handle.epoch,
        head=thread.head,
        inputs=(StepInput(id="go", text="go"),),
        turn=1,
        run_id="run",
    )
    before, reset = ActivityEnvironment(), ActivityEnvironment()
    reset.info = replace(reset.info, workflow_run_id="the-new-run")
    await before.run(here.stepper.run, request)
    hot.restore(older)
    with pytest.raises(HeadMovedError):
        await reset.run(here.stepper.run, request)
    assert here.model.calls == 1
