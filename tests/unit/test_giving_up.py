"""A suspended turn that is given up, when the hot thread has lost it meanwhile."""

from typing import Any

import pytest

from helix_temporal.errors import FencedError, HeadMovedError, HelixError, ThreadNotFoundError
from helix_temporal.models.agents import AgentFacts
from helix_temporal.models.messages import ToolCall
from helix_temporal.models.sessions import CallPolicy, ExitReason, OpenHandle, SuspendedTurn, UserMessage
from helix_temporal.models.steps import (
    EndTurnInput,
    OpenSessionInput,
    OpenSessionResult,
    RunStepInput,
    RunStepResult,
)
from helix_temporal.models.stored_messages import EMPTY, Head
from helix_temporal.models.waiting import (
    INTERRUPTED,
    PendingCall,
    SubAgentCall,
    SubmitInput,
    WaitingCall,
)
from helix_temporal.session.pending_calls import PendingCalls
from helix_temporal.workflows.opening import CurrentThread
from helix_temporal.workflows.turn import Turn

FACTS = AgentFacts(name="a", max_steps=3)
ASKED = Head(position=2, last_id="asked")
ANSWERED = Head(position=2, last_id="answered")


class Forgetful:
    """`Calls` of a thread that has lost all there was; ``refusal`` says so."""

    def __init__(self, refusal: HelixError | None = None) -> None:
        self.steps: list[RunStepInput] = []
        self.refusal = refusal or HeadMovedError("it is not there")

    def new_id(self) -> str:
        """Any."""
        return "0123456789abcdef0123"

    async def open(self, request: OpenSessionInput) -> OpenSessionResult:
        """It begins anew."""
        handle = OpenHandle(epoch=2, head=EMPTY)
        return OpenSessionResult(handle=handle, facts=FACTS, policy=CallPolicy())

    async def end_turn(self, request: EndTurnInput) -> RunStepResult:
        """The step that asked is gone."""
        raise self.refusal

    async def run_step(self, request: RunStepInput) -> RunStepResult:
        """The model answers at once."""
        self.steps.append(request)
        return RunStepResult(head=ANSWERED, text="said anew")


def waiting_turn(calls: Any) -> tuple[Turn, SuspendedTurn]:
    """A turn whose only call was given up."""
    request = OpenSessionInput(session_id="s", thread_id="s", agent="a", owner="o")
    waits = PendingCalls(lambda: 0)
    suspended = SuspendedTurn(
        head=ASKED,
        start=EMPTY,
        run_id="r",
        steps=1,
        messages=(UserMessage(id="m", text="go"),),
        calls=(ToolCall(id="c", name="locate"),),
        waiting=(WaitingCall(id="w"),),
    )
    waits.begin_wait(suspended)
    waits.give_up_calls(INTERRUPTED)
    thread = CurrentThread(request, OpenHandle(epoch=1, head=ASKED), FACTS)
    return Turn(calls, thread, number=1, max_steps=3, pending_calls=waits), suspended


async def test_a_turn_that_is_given_up_and_was_lost_is_run_again() -> None:
    """Whoever asked was told that the message is in the thread: it comes back, and the session lives on."""
    calls = Forgetful()
    turn, suspended = waiting_turn(calls)
    result = await turn.give_up(suspended, ExitReason.INTERRUPTED)
    assert result.in_thread
    assert [each.id for each in calls.steps[0].inputs] == ["m"]
    assert turn.interrupted


@pytest.mark.parametrize("kind", [HeadMovedError, FencedError, ThreadNotFoundError])
async def test_a_lost_turn_that_is_not_run_again_is_said_to_be_lost(kind: type[HelixError]) -> None:
    """Whatever the store said first: a session that ends must not tell that it still waits for answers."""
    turn, suspended = waiting_turn(Forgetful(kind("it is not there")))
    with pytest.raises(HeadMovedError, match="the turn that waited is lost"):
        await turn.give_up(suspended, ExitReason.INTERRUPTED, again=False)


async def test_a_sub_agent_that_nobody_can_call_any_more_waits_no_more() -> None:
    """A deploy took the tool away while a person thought: no later call is taken for the old one."""
    calls: Any = Forgetful()
    waits = PendingCalls(lambda: 0)
    question = PendingCall(id="q", call_id="q", name="n")
    suspended = SuspendedTurn(
        head=ASKED,
        start=EMPTY,
        run_id="r",
        steps=1,
        messages=(UserMessage(id="m", text="go"),),
        calls=(ToolCall(id="c", name="helper"),),
        children=(SubAgentCall(session_id="s>h", call="a.0", calls=(question,)),),
    )
    waits.begin_wait(suspended)
    assert waits.submit_answer(SubmitInput(call="q")).status == "submitted"
    request = OpenSessionInput(session_id="s", thread_id="s", agent="a", owner="o")
    thread = CurrentThread(request, OpenHandle(epoch=1, head=ASKED), FACTS)
    await Turn(calls, thread, number=1, max_steps=3, pending_calls=waits).resume(suspended)
    assert "There is no tool" in calls.steps[0].inputs[0].text
    assert waits.suspended is None
    assert (waits.sub_agent_calls.list_calls(), waits.sub_agent_calls.list_pending()) == ((), ())
    assert [each.session_id for each in waits.sub_agent_calls.dismiss_all()] == ["s>h"]
