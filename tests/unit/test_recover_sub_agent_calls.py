"""Sub-agents that were found to wait when their caller's thread was opened: what the slice then says."""

from helix_temporal.models.messages import ToolResult
from helix_temporal.models.stored_messages import Head
from helix_temporal.models.waiting import (
    AnswerReceipt,
    CallOutcome,
    PendingCall,
    SubAgentCall,
    Suspension,
    WaitingCall,
)
from helix_temporal.session.record import SessionRecord, add_waiting_children
from helix_temporal.session.sub_agents import add_waiting_calls

HEAD = Head(position=2, last_id="asks")
NOTHING = Suspension(head=HEAD)


def suspended(at: int, question: str = "q") -> SubAgentCall:
    """A call whose session waits for this."""
    call = PendingCall(id=question, call_id="c", name="ask_user")
    return SubAgentCall(at=at, session_id=f"s>helper>asks.{at}", call=f"asks.{at}", calls=(call,))


def test_who_was_found_is_waited_for() -> None:
    """In call order."""
    found = add_waiting_calls(NOTHING, {1: suspended(1), 0: suspended(0), 2: None})
    assert found == NOTHING.model_copy(update={"children": (suspended(0), suspended(1))})


def test_a_slice_that_says_all_there_is_is_left_alone() -> None:
    """An open of a tree that rests writes nothing for that."""
    stored = NOTHING.model_copy(update={"children": (suspended(0),)})
    assert add_waiting_calls(stored, {0: suspended(0)}) is stored


def test_who_has_come_to_an_end_is_waited_for_no_more() -> None:
    """The call is made again, and finds the answer."""
    stored = NOTHING.model_copy(update={"children": (suspended(0), suspended(1))})
    found = add_waiting_calls(stored, {0: None, 1: suspended(1, "another")})
    assert found == NOTHING.model_copy(update={"children": (suspended(1, "another"),)})


def test_a_call_with_a_result_waits_for_nobody() -> None:
    """Whatever its session says."""
    known = (CallOutcome(at=0, result=ToolResult(text="done")),)
    stored = NOTHING.model_copy(update={"outcomes": known})
    assert add_waiting_calls(stored, {0: suspended(0)}) is stored


def test_a_call_whose_approval_was_lost_waits_for_that_first() -> None:
    """Two questions of one call would each hold up the other; one that has leave is another matter."""
    stored = NOTHING.model_copy(update={"calls": (WaitingCall(id="a", at=0, kind="approval"),)})
    assert add_waiting_calls(stored, {0: suspended(0)}) is stored
    approved = stored.model_copy(update={"outcomes": (CallOutcome(at=0, answered=AnswerReceipt(id="a")),)})
    found = add_waiting_calls(approved, {0: suspended(0)})
    assert found.children == (suspended(0),)


def test_what_a_late_save_knows_of_other_calls_stays() -> None:
    """A worker that came too late to be told of the terminate has written between the look and the open."""
    known = (CallOutcome(at=1, result=ToolResult(text="done")),)
    late = SessionRecord(suspended=NOTHING.model_copy(update={"outcomes": known}))
    asleep = NOTHING.model_copy(update={"children": (suspended(0),)})
    merged = add_waiting_children(late, HEAD, asleep).suspended
    assert merged == asleep.model_copy(update={"outcomes": known})


def test_a_thread_that_stands_elsewhere_waits_for_nothing_that_was_found() -> None:
    """It went on, or was cut."""
    asleep = NOTHING.model_copy(update={"children": (suspended(0),)})
    assert add_waiting_children(SessionRecord(), Head(position=4, last_id="later"), asleep) == SessionRecord()
