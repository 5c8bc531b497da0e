"""What a session remembers of answered calls has a bound: sessions live for years."""

from helix_temporal.models.sessions import ExitReason
from helix_temporal.models.states import (
    MAX_COMPLETED_CALLS,
    CompletedClientToolCall,
    PendingClientToolCall,
    SessionState,
)
from helix_temporal.models.steps import EndTurnInput, SaveValuesInput, StepInput
from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.models.waiting import REMEMBERED_CALLS, AnswerReceipt, SubmitInput
from helix_temporal.session.pending_calls import PendingCalls
from helix_temporal.session.projection import project_answers, project_call_owners
from helix_temporal.session.record import SessionRecord, apply_step, apply_suspension
from helix_temporal.stores.protocols.hot import StepAppend


def completed(count: int, name: str = "call") -> dict[str, CompletedClientToolCall]:
    """So many, one a millisecond, the newest first as a store may give them back."""
    return {
        f"{name}-{at}": CompletedClientToolCall(
            tool_call_id=f"{name}-{at}", outcome="result", completed_at=at + 1
        )
        for at in reversed(range(count))
    }


def test_a_session_forgets_the_oldest_of_very_many_answered_calls() -> None:
    """Its state is read and written with each turn."""
    full = completed(MAX_COMPLETED_CALLS)
    state = SessionState(session_id="s", agent_type="a", completed_client_tool_calls=full)
    newest = AnswerReceipt(id="newest", outcome="result", when=10_000)
    kept = project_answers(state, [newest])["completed_client_tool_calls"]
    assert len(kept) == MAX_COMPLETED_CALLS
    assert "call-0" not in kept
    assert {"newest", "call-1", f"call-{MAX_COMPLETED_CALLS - 1}"} <= kept.keys()


def test_a_root_forgets_owners_that_it_was_told_of_before() -> None:
    """An answer to a call that has just begun to wait must find its way, however many there were before."""
    owned = {f"old-{at}": "other" for at in range(256)}
    root = SessionState(session_id="r", agent_type="a", client_tool_call_ownership=owned)
    pending = PendingClientToolCall(tool_call_id="open", tool_name="sign")
    child = SessionState(
        session_id="child",
        agent_type="a",
        pending_client_tool_calls={"open": pending},
        completed_client_tool_calls=completed(100, "done"),
    )
    found = project_call_owners(root, child)["client_tool_call_ownership"]
    assert len(found) == 256
    assert (found["open"], found["done-99"], found["old-255"]) == ("child", "child", "other")
    assert {"done-0", "old-0"}.isdisjoint(found)


def test_what_the_turn_took_counts() -> None:
    """An answer came to the store when the session had given the call up: all say that it expired."""
    first = CompletedClientToolCall(tool_call_id="call", outcome="result", completed_at=1, result_hash="h")
    state = SessionState(session_id="s", agent_type="a", completed_client_tool_calls={"call": first})
    late = AnswerReceipt(id="call", outcome="expired", when=2)
    assert project_answers(state, [late])["completed_client_tool_calls"]["call"].outcome == "expired"
    same = AnswerReceipt(id="call", outcome="result", when=2)
    assert project_answers(state, [same])["completed_client_tool_calls"]["call"] == first


def test_a_call_that_an_ending_has_saved_is_remembered_once() -> None:
    """Of twice as many the half would be forgotten, and a late repeat be told that nobody asked for it."""
    before, own = range(20, REMEMBERED_CALLS), range(20)
    saved = SessionRecord(answered=tuple(AnswerReceipt(id=f"call-{at}") for at in (*before, *own)))
    again = tuple(AnswerReceipt(id=f"call-{at}", when=at) for at in own)
    inputs = tuple(StepInput(id=f"r{at}", call=f"c{at}", answered=each) for at, each in enumerate(again))
    request = EndTurnInput(
        session_id="s", epoch=1, head=EMPTY, inputs=inputs, run_id="r", reason=ExitReason.MAX_STEPS
    )
    after = apply_step(saved, StepAppend("s", 1, EMPTY, (), None, commits=True), request, ())
    assert {each.id: each.when for each in after.answered} == {
        **{f"call-{at}": 0 for at in before},
        **{f"call-{at}": at for at in own},
    }


LOST = AnswerReceipt(id="c", when=1, outcome="expired")
AGAIN = AnswerReceipt(id="c", when=2, by="r")
"""A sub-agent that lost an answer asks again, and is answered again."""


def test_a_step_saves_the_newest_answer_of_a_call() -> None:
    """It kept the lost one, and whoever answered then was told that time was up."""
    request = EndTurnInput(
        session_id="s",
        epoch=1,
        head=EMPTY,
        inputs=(),
        run_id="r",
        reason=ExitReason.COMPLETED,
        answered=(AGAIN,),
    )
    step = StepAppend("s", 1, EMPTY, (), None, commits=True)
    assert apply_step(SessionRecord(answered=(LOST,)), step, request, ()).answered == (AGAIN,)


def test_an_end_saves_the_newest_answer_of_a_call() -> None:
    """As a step does."""
    request = SaveValuesInput(thread_id="s", epoch=1, values={}, answered=(AGAIN,))
    assert apply_suspension(SessionRecord(answered=(LOST,)), request).answered == (AGAIN,)


def test_the_newest_answer_of_a_call_is_remembered() -> None:
    """Also where the thread has it from a run that this one did not know of; an older one changes nothing."""
    waits = PendingCalls(lambda: 0, remembered=(LOST,))
    waits.remember_answers((AGAIN,))
    waits.remember_answers((LOST,))
    assert waits.submit_answer(SubmitInput(call="c", by="r")).status == "submitted"
