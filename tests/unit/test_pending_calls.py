"""What waits, and answers to it: each counts once, and all else is told why it does not."""

from contextlib import nullcontext

import pytest

from helix_temporal.errors import InvalidRequestError
from helix_temporal.models.messages import ToolCall, ToolResult
from helix_temporal.models.sessions import SuspendedTurn
from helix_temporal.models.stored_messages import EMPTY, Head
from helix_temporal.models.waiting import (
    NO_ANSWER,
    REMEMBERED_CALLS,
    AnswerReceipt,
    CallKind,
    CallOutcome,
    PendingCall,
    SubAgentCall,
    SubmitInput,
    Suspension,
    TakenAnswer,
    WaitingCall,
    check_outcome,
    pending_below,
)
from helix_temporal.session.pending_calls import (
    PendingCalls,
    list_pending_calls,
    list_unanswered_calls,
    list_unfinished_children,
)
from tests.unit._clock import Clock

HOUR = 3_600_000
SINCE = 1_800_000_000_000


@pytest.fixture
def clock() -> Clock:
    return Clock(SINCE)


@pytest.fixture
def waits(clock: Clock) -> PendingCalls:
    return PendingCalls(clock)


def turn(*waiting: WaitingCall, calls: int = 3, number: int = 0) -> SuspendedTurn:
    """A step of so many calls, some of which wait."""
    return SuspendedTurn(
        head=Head(position=2 + number, last_id=f"a{number}"),
        start=EMPTY,
        calls=tuple(ToolCall(id=f"call_{at}", name="do") for at in range(calls)),
        waiting=waiting,
    )


CLIENT = WaitingCall(id="c", at=0, since=SINCE)
APPROVAL = WaitingCall(id="p", at=1, kind="approval", since=SINCE)
DONE = ToolResult(text="done")
HURRY = WaitingCall(id="h", at=2, since=SINCE, until=SINCE + HOUR)


@pytest.mark.parametrize(
    ("outcomes", "pending"),
    [
        pytest.param((), ["c", "p", "below"], id="nothing is answered"),
        pytest.param((CallOutcome(at=0, result=DONE),), ["p", "below"], id="a client gave its result"),
        pytest.param((CallOutcome(at=1, answered=AnswerReceipt(id="p")),), ["c", "below"], id="approved"),
        pytest.param((CallOutcome(at=2, result=DONE),), ["c", "p"], id="the sub-agent has ended"),
    ],
)
def test_what_is_pending_is_the_same_in_memory_and_from_the_record(
    waits: PendingCalls, outcomes: tuple[CallOutcome, ...], pending: list[str]
) -> None:
    """A caller that finds a sub-agent's record waits for what the sub-agent's own workflow says."""
    below = PendingCall(id="below", call_id="b", name="ask")
    record = Suspension(
        head=turn().head,
        calls=(CLIENT, APPROVAL),
        outcomes=outcomes,
        children=(SubAgentCall(at=2, session_id="s>helper", call="x", calls=(below,)),),
    )
    unanswered, children = list_unanswered_calls(record.calls, outcomes), list_unfinished_children(record)
    found = list_pending_calls(record.head, turn().calls, unanswered, pending_below(children))
    waits.begin_wait(turn(CLIENT, APPROVAL).model_copy(update={"outcomes": outcomes, "children": children}))
    assert [each.id for each in found] == pending
    assert waits.list_pending() == found


def test_calls_that_wait_for_nobody_may_run(waits: PendingCalls) -> None:
    """A person's slowness is theirs alone."""
    waits.begin_wait(turn(CLIENT, APPROVAL))
    assert waits.list_runnable() == [2]
    waits.add_result(2, ToolResult(text="done"))
    assert (waits.list_runnable(), waits.ready) == ([], False)


def test_an_approved_call_may_run(waits: PendingCalls) -> None:
    """Once it was approved, and once."""
    waits.begin_wait(turn(APPROVAL, calls=2))
    waits.add_result(0, ToolResult(text="done"))
    waits.submit_answer(SubmitInput(call="p", outcome="approved"))
    assert (waits.list_runnable(), waits.ready) == ([1], True)
    waits.add_result(1, ToolResult(text="ran"))
    assert waits.list_runnable() == []
    assert waits.get_receipts()[1].outcome == "approved"


def test_a_call_wants_one_kind_of_answer_until_it_has_one(waits: PendingCalls, clock: Clock) -> None:
    """What is answered, or late, wants none: whoever comes then is told so, whatever he brings."""
    waits.begin_wait(turn(CLIENT, APPROVAL, HURRY))
    assert [waits.kind_wanted(call) for call in ("c", "p", "h", "x")] == [
        "client",
        "approval",
        "client",
        None,
    ]
    waits.submit_answer(SubmitInput(call="p", outcome="approved"))
    clock.now += HOUR
    assert [waits.kind_wanted(call) for call in ("c", "p", "h")] == ["client", None, None]


OUTCOMES = ("result", "error", "approved", "denied", "expired")


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize(
    ("kind", "fitting", "by"),
    [
        ("client", {"result", "error"}, "submit_tool_result"),
        ("approval", {"approved", "denied"}, "submit_approval"),
    ],
)
def test_an_answer_of_another_kind_is_refused(
    kind: CallKind, fitting: set[str], by: str, outcome: str
) -> None:
    """Whoever gave it is told what to call instead."""
    refused = nullcontext() if outcome in fitting else pytest.raises(InvalidRequestError, match=by)
    with refused:
        check_outcome("c", kind, outcome)


@pytest.mark.parametrize("outcome", ["denied", "error"])
def test_a_call_that_was_not_approved_does_not_run(waits: PendingCalls, outcome: str) -> None:
    """Whatever its answer is called: only leave to run lets it run."""
    waits.begin_wait(turn(APPROVAL, calls=2))
    waits.submit_answer(SubmitInput.model_validate({"call": "p", "outcome": outcome, "text": "no"}))
    assert waits.list_runnable() == [0]
    assert waits.results()[1].is_error


def test_a_deadline_gives_a_call_up(waits: PendingCalls, clock: Clock) -> None:
    """The model is told; whoever answers later is, too."""
    waits.begin_wait(turn(CLIENT, HURRY))
    assert waits.seconds_left() == 3600
    clock.now += HOUR
    waits.expire_calls()
    assert waits.results()[2].text == NO_ANSWER
    assert waits.submit_answer(SubmitInput(call="h")).status == "expired"
    assert waits.seconds_left() is None


def test_an_answer_after_the_deadline_is_late_before_anybody_looked(
    waits: PendingCalls, clock: Clock
) -> None:
    """A timer that fires a moment later must not let it in."""
    waits.begin_wait(turn(HURRY))
    clock.now += HOUR + 1
    assert waits.submit_answer(SubmitInput(call="h")).status == "expired"
    assert waits.results()[2].text == NO_ANSWER


def test_an_answer_at_the_deadline_is_late(waits: PendingCalls, clock: Clock) -> None:
    """At its deadline a call has expired, here as in the session store."""
    waits.begin_wait(turn(HURRY))
    clock.now += HOUR
    assert waits.submit_answer(SubmitInput(call="h")).status == "expired"
    assert waits.results()[2].text == NO_ANSWER


def test_deadlines_of_a_worker_whose_clock_is_wrong_count_from_now(waits: PendingCalls, clock: Clock) -> None:
    """Or a question would be too late before it was asked."""
    clock.now += 24 * HOUR
    waits.begin_wait(turn(HURRY), shift_deadlines=True)
    assert waits.seconds_left() == 3600


def test_the_same_step_is_told_of_once(waits: PendingCalls) -> None:
    """Whoever asked is told again only of something else."""
    told: list[int] = []
    waits.on_step_waits = lambda: told.append(waits.rounds)
    waits.begin_wait(turn(CLIENT))
    waits.begin_wait(turn(CLIENT))
    waits.end_wait()
    waits.begin_wait(turn(CLIENT, number=2))
    assert told == [1, 2]


def test_what_is_known_is_found_again(clock: Clock, waits: PendingCalls) -> None:
    """Carried along, or read from the slice: no tool runs twice, no answer is asked for twice."""
    waits.begin_wait(turn(CLIENT, APPROVAL))
    waits.add_result(2, ToolResult(text="done"))
    waits.submit_answer(SubmitInput(call="c", text="here", by="me"))
    carried = waits.carry_over()
    later = PendingCalls(clock, carried["answered_calls"])
    later.begin_wait(carried["suspended"])
    assert later.results() == waits.results()
    assert [call.id for call in later.list_pending()] == ["p"]
    assert later.submit_answer(SubmitInput(call="c", by="me")).status == "submitted"
    assert later.submit_answer(SubmitInput(call="c", by="you")).status == "already_completed"


def test_a_call_that_waits_again_takes_an_answer_again(waits: PendingCalls) -> None:
    """The thread lost the step that had the first one."""
    answer = SubmitInput(call="c", text="here", by="one")
    waits.begin_wait(turn(CLIENT, number=1))
    assert waits.submit_answer(answer).status == "submitted"
    waits.end_wait()
    assert waits.submit_answer(answer.model_copy(update={"by": "two"})).status == "already_completed"
    waits.begin_wait(turn(CLIENT, number=1))
    assert waits.kind_wanted("c") == "client"
    assert waits.submit_answer(answer).status == "submitted"
    assert waits.results()[0].text == "here"


def test_giving_up_leaves_no_call_without_a_result(waits: PendingCalls) -> None:
    """A thread whose calls have no results is refused by providers."""
    waits.begin_wait(turn(CLIENT, APPROVAL))
    waits.submit_answer(SubmitInput(call="p"))
    waits.give_up_calls("why")
    assert [waits.results()[at].text for at in range(3)] == ["why"] * 3
    assert waits.ready


def test_only_the_newest_answers_are_remembered(clock: Clock) -> None:
    """They are carried in each slice."""
    waits = PendingCalls(clock, [AnswerReceipt(id=f"old{n}") for n in range(REMEMBERED_CALLS)])
    waits.begin_wait(turn(CLIENT))
    waits.submit_answer(SubmitInput(call="c"))
    assert len(waits.carry_over()["answered_calls"]) == REMEMBERED_CALLS
    assert not waits.knows_call("old0")
    assert waits.knows_call("c")


def test_what_answers_take_is_counted_as_they_travel(waits: PendingCalls) -> None:
    """In JSON a control character takes six bytes: the input of the next step would be too large."""
    waits.begin_wait(turn(CLIENT, APPROVAL))
    waits.submit_answer(SubmitInput(call="c", text="\x01" * 1000))
    assert waits.inline_size > 6000


def test_an_unknown_call_is_not_pending(waits: PendingCalls) -> None:
    """With or without a step that waits."""
    assert waits.submit_answer(SubmitInput(call="x")).status == "not_pending"
    waits.begin_wait(turn(CLIENT))
    assert waits.submit_answer(SubmitInput(call="x")).status == "not_pending"


def test_answers_below_are_remembered_as_the_newest_and_not_for_ever(waits: PendingCalls) -> None:
    """A root whose sub-agents ask all day carries no more than another, and forgets the oldest first."""
    for number in range(REMEMBERED_CALLS + 5):
        waits.remember_answers([AnswerReceipt(id=f"below{number}")])
    assert len(waits.carry_over()["answered_calls"]) == REMEMBERED_CALLS
    assert not waits.knows_call("below4")
    waits.begin_wait(turn(CLIENT))
    waits.submit_answer(SubmitInput(call="c"))
    assert waits.knows_call(f"below{REMEMBERED_CALLS + 4}")


def below(waits: PendingCalls, *names: str, until: int | None = None) -> None:
    """Sub-agents wait for these."""
    for at, name in enumerate(names):
        call = PendingCall(id=name, call_id=name, name="ask_user", until=until)
        waits.sub_agent_calls.suspend_call(
            SubAgentCall(at=at, session_id=f"s>{name}", call=name, calls=(call,))
        )


def answer_below(waits: PendingCalls, *names: str, by: str = "") -> None:
    """They are answered."""
    below(waits, *names)
    for name in names:
        assert waits.submit_answer(SubmitInput(call=name, by=by)).status == "submitted"


def test_a_call_below_is_answered_once(waits: PendingCalls) -> None:
    """By the same rule as a call of one's own; whoever comes later is told of the first answer."""
    answer_below(waits, "q", by="one")
    again = [waits.submit_answer(SubmitInput(call="q", by=by)).status for by in ("one", "two")]
    assert again == ["submitted", "already_completed"]
    assert (waits.knows_call("q"), waits.has_below("q")) == (True, False)


def test_a_late_answer_below_is_told_that_it_expired(waits: PendingCalls, clock: Clock) -> None:
    """Also once the sub-agent has gone on without it."""
    below(waits, "q", until=SINCE + HOUR)
    clock.now = SINCE + HOUR
    assert waits.submit_answer(SubmitInput(call="q")).status == "expired"
    waits.sub_agent_calls.resume_call(0)
    waits.sub_agent_calls.finish_call(0)
    assert waits.submit_answer(SubmitInput(call="q")).status == "expired"


def test_an_answer_below_counts_from_when_the_root_took_it(waits: PendingCalls, clock: Clock) -> None:
    """A deadline that passes on the way does not undo what a person was told."""
    waits.begin_wait(turn(HURRY))
    clock.now = SINCE + 2 * HOUR
    waits.receive_answer(TakenAnswer(request=SubmitInput(call="h", text="in time"), when=SINCE + 1))
    assert waits.results()[2].text == "in time"


def test_an_answer_that_comes_before_its_question_waits_for_it(waits: PendingCalls) -> None:
    """The thread went back to before the question, which the turn comes to once more."""
    waits.receive_answer(TakenAnswer(request=SubmitInput(call="c", text="early"), when=SINCE))
    waits.receive_answer(TakenAnswer(request=SubmitInput(call="q"), when=SINCE))
    waits.begin_wait(turn(CLIENT))
    assert waits.results()[0].text == "early"
    below(waits, "q")
    assert not waits.has_below("q")


def test_an_answer_that_was_taken_in_time_is_not_given_up(waits: PendingCalls, clock: Clock) -> None:
    """Its session was started late, or had given the call up before the answer came."""
    clock.now = SINCE + 2 * HOUR
    in_time = TakenAnswer(request=SubmitInput(call="h", text="in time"), when=SINCE + 1)
    waits.receive_answer(in_time)
    waits.begin_wait(turn(HURRY))
    waits.expire_calls()
    assert waits.results()[2].text == "in time"
    again = PendingCalls(clock)
    again.begin_wait(turn(HURRY))
    again.expire_calls()
    assert again.results()[2].text == NO_ANSWER
    again.receive_answer(in_time.model_copy(update={"when": SINCE + HOUR}))
    assert again.results()[2].text == NO_ANSWER
    again.receive_answer(in_time)
    assert again.results()[2].text == "in time"


def test_the_record_has_an_answer_below_by_one_step(waits: PendingCalls) -> None:
    """Each step would carry all of them otherwise; until then the next run takes them along."""
    waits.remember_answers([AnswerReceipt(id="before")])
    answer_below(waits, "q", by="one")
    saved = waits.list_unsaved_answers()
    assert [each.id for each in saved] == ["q"]
    carried = waits.carry_over()
    further = PendingCalls(Clock(), carried["answered_calls"], carried["unsaved_answers"])
    assert further.list_unsaved_answers() == saved
    answer_below(waits, "meanwhile")
    waits.mark_saved(saved)
    assert [each.id for each in waits.list_unsaved_answers()] == ["meanwhile"]


def test_an_ending_saves_answers_below(waits: PendingCalls) -> None:
    """No step will say them in this execution."""
    assert waits.build_save_fields()["answered"] == ()
    answer_below(waits, "q")
    assert [each.id for each in waits.build_save_fields()["answered"]] == ["q"]


def test_what_is_forgotten_is_told_to_nobody(waits: PendingCalls) -> None:
    """A turn whose sub-agents ask all day."""
    for number in range(REMEMBERED_CALLS + 5):
        answer_below(waits, f"q{number}")
    assert len(waits.list_unsaved_answers()) == REMEMBERED_CALLS


def test_a_second_answer_below_does_not_take_the_place_of_the_first(waits: PendingCalls) -> None:
    """Whoever gave the first one and asks again must be told so."""
    waits.remember_answers([AnswerReceipt(id="below", when=1, by="first")])
    waits.remember_answers([AnswerReceipt(id="below", when=1)])
    assert waits.submit_answer(SubmitInput(call="below", by="first")).status == "submitted"


def test_a_call_that_is_asked_and_answered_again_is_among_the_newest(waits: PendingCalls) -> None:
    """It kept its old place, and was forgotten with a receipt that no step had saved yet."""
    answer_below(waits, "again")
    for number in range(REMEMBERED_CALLS - 1):
        answer_below(waits, f"q{number}")
    answer_below(waits, "again")
    answer_below(waits, "newest")
    saved = [each.id for each in waits.list_unsaved_answers()]
    assert "again" in saved
    assert "q0" not in saved
