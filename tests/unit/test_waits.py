"""What waits, and answers to it: each counts once, and all else is told why it does not."""

from contextlib import nullcontext

import pytest

from helix_temporal.errors import InvalidRequestError
from helix_temporal.models.messages import ToolCall, ToolResult
from helix_temporal.models.records import EMPTY, Head
from helix_temporal.models.sessions import SuspendedTurn
from helix_temporal.models.waiting import (
    NO_ANSWER,
    REMEMBERED_CALLS,
    AnsweredCall,
    CallKind,
    SubmitInput,
    WaitingCall,
    check_outcome,
)
from helix_temporal.session.waiting import Waits
from tests.unit._clock import Clock

HOUR = 3_600_000
SINCE = 1_800_000_000_000


@pytest.fixture
def clock() -> Clock:
    return Clock(SINCE)


@pytest.fixture
def waits(clock: Clock) -> Waits:
    return Waits(clock)


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
HURRY = WaitingCall(id="h", at=2, since=SINCE, until=SINCE + HOUR)


def test_calls_that_wait_for_nobody_may_run(waits: Waits) -> None:
    """A person's slowness is theirs alone."""
    waits.begin(turn(CLIENT, APPROVAL))
    assert waits.to_run() == [2]
    waits.found(2, ToolResult(text="done"))
    assert (waits.to_run(), waits.ready) == ([], False)


def test_an_approved_call_may_run(waits: Waits) -> None:
    """Once it was approved, and once."""
    waits.begin(turn(APPROVAL, calls=2))
    waits.found(0, ToolResult(text="done"))
    waits.submit(SubmitInput(call="p", outcome="approved"))
    assert (waits.to_run(), waits.ready) == ([1], True)
    waits.found(1, ToolResult(text="ran"))
    assert waits.to_run() == []
    assert waits.answers()[1].outcome == "approved"


def test_a_call_wants_one_kind_of_answer_until_it_has_one(waits: Waits, clock: Clock) -> None:
    """What is answered, or late, wants none: whoever comes then is told so, whatever he brings."""
    waits.begin(turn(CLIENT, APPROVAL, HURRY))
    assert [waits.kind_wanted(call) for call in ("c", "p", "h", "x")] == [
        "client",
        "approval",
        "client",
        None,
    ]
    waits.submit(SubmitInput(call="p", outcome="approved"))
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
def test_a_call_that_was_not_approved_does_not_run(waits: Waits, outcome: str) -> None:
    """Whatever its answer is called: only leave to run lets it run."""
    waits.begin(turn(APPROVAL, calls=2))
    waits.submit(SubmitInput.model_validate({"call": "p", "outcome": outcome, "text": "no"}))
    assert waits.to_run() == [0]
    assert waits.results()[1].is_error


def test_a_deadline_gives_a_call_up(waits: Waits, clock: Clock) -> None:
    """The model is told; whoever answers later is, too."""
    waits.begin(turn(CLIENT, HURRY))
    assert waits.left() == 3600
    clock.now += HOUR
    waits.expire()
    assert waits.results()[2].text == NO_ANSWER
    assert waits.submit(SubmitInput(call="h")).status == "expired"
    assert waits.left() is None


def test_an_answer_after_the_deadline_is_late_before_anybody_looked(waits: Waits, clock: Clock) -> None:
    """A timer that fires a moment later must not let it in."""
    waits.begin(turn(HURRY))
    clock.now += HOUR + 1
    assert waits.submit(SubmitInput(call="h")).status == "expired"
    assert waits.results()[2].text == NO_ANSWER


def test_an_answer_at_the_deadline_is_late(waits: Waits, clock: Clock) -> None:
    """At its deadline a call has expired, here as in the session store."""
    waits.begin(turn(HURRY))
    clock.now += HOUR
    assert waits.submit(SubmitInput(call="h")).status == "expired"
    assert waits.results()[2].text == NO_ANSWER


def test_deadlines_of_a_worker_whose_clock_is_wrong_count_from_now(waits: Waits, clock: Clock) -> None:
    """Or a question would be too late before it was asked."""
    clock.now += 24 * HOUR
    waits.begin(turn(HURRY), found=False)
    assert waits.left() == 3600


def test_the_same_step_is_told_of_once(waits: Waits) -> None:
    """Whoever asked is told again only of something else."""
    told: list[int] = []
    waits.on_wait = lambda: told.append(waits.rounds)
    waits.begin(turn(CLIENT))
    waits.begin(turn(CLIENT))
    waits.end()
    waits.begin(turn(CLIENT, number=2))
    assert told == [1, 2]


def test_what_is_known_is_found_again(clock: Clock, waits: Waits) -> None:
    """Carried along, or read from the slice: no tool runs twice, no answer is asked for twice."""
    waits.begin(turn(CLIENT, APPROVAL))
    waits.found(2, ToolResult(text="done"))
    waits.submit(SubmitInput(call="c", text="here", by="me"))
    carried = waits.carried()
    later = Waits(clock, carried["answered_calls"])
    later.begin(carried["suspended"])
    assert later.results() == waits.results()
    assert [call.id for call in later.pending()] == ["p"]
    assert later.submit(SubmitInput(call="c", by="me")).status == "submitted"
    assert later.submit(SubmitInput(call="c", by="you")).status == "already_completed"


def test_a_call_that_waits_again_takes_an_answer_again(waits: Waits) -> None:
    """The thread lost the step that had the first one."""
    answer = SubmitInput(call="c", text="here", by="one")
    waits.begin(turn(CLIENT, number=1))
    assert waits.submit(answer).status == "submitted"
    waits.end()
    assert waits.submit(answer.model_copy(update={"by": "two"})).status == "already_completed"
    waits.begin(turn(CLIENT, number=1))
    assert waits.kind_wanted("c") == "client"
    assert waits.submit(answer).status == "submitted"
    assert waits.results()[0].text == "here"


def test_giving_up_leaves_no_call_without_a_result(waits: Waits) -> None:
    """A thread whose calls have no results is refused by providers."""
    waits.begin(turn(CLIENT, APPROVAL))
    waits.submit(SubmitInput(call="p"))
    waits.give_up("why")
    assert [waits.results()[at].text for at in range(3)] == ["why"] * 3
    assert waits.ready


def test_only_the_newest_answers_are_remembered(clock: Clock) -> None:
    """They are carried in each slice."""
    waits = Waits(clock, [AnsweredCall(id=f"old{n}") for n in range(REMEMBERED_CALLS)])
    waits.begin(turn(CLIENT))
    waits.submit(SubmitInput(call="c"))
    assert len(waits.carried()["answered_calls"]) == REMEMBERED_CALLS
    assert not waits.knows("old0")
    assert waits.knows("c")


def test_an_unknown_call_is_not_pending(waits: Waits) -> None:
    """With or without a step that waits."""
    assert waits.submit(SubmitInput(call="x")).status == "not_pending"
    waits.begin(turn(CLIENT))
    assert waits.submit(SubmitInput(call="x")).status == "not_pending"


def test_answers_below_are_remembered_as_the_newest_and_not_for_ever(waits: Waits) -> None:
    """A root whose sub-agents ask all day carries no more than another, and forgets the oldest first."""
    for number in range(REMEMBERED_CALLS + 5):
        waits.remember([AnsweredCall(id=f"below{number}")])
    assert len(waits.carried()["answered_calls"]) == REMEMBERED_CALLS
    assert not waits.knows("below4")
    waits.begin(turn(CLIENT))
    waits.submit(SubmitInput(call="c"))
    assert waits.knows(f"below{REMEMBERED_CALLS + 4}")


def test_the_slice_is_told_of_an_answer_below_by_one_step(waits: Waits) -> None:
    """Each step would carry all of them otherwise; until then the next run takes them along."""
    waits.remember([AnsweredCall(id="before")])
    waits.remember_below(AnsweredCall(id="below", by="one"))
    told = waits.unsaid()
    assert [each.id for each in told] == ["below"]
    carried = waits.carried()
    further = Waits(Clock(), carried["answered_calls"], unsaid=carried["unsaid"])
    assert further.unsaid() == told
    waits.remember_below(AnsweredCall(id="meanwhile"))
    waits.said(told)
    assert [each.id for each in waits.unsaid()] == ["meanwhile"]


def test_an_ending_saves_answers_below_with_the_turn_that_waits(waits: Waits) -> None:
    """No step will say them in this execution; where nothing is saved, they are no reason to."""
    waits.remember_below(AnsweredCall(id="below"))
    waits.begin(turn(CLIENT))
    assert waits.to_save()["answered"] == ()
    waits.found(1, ToolResult(text="done"))
    assert [each.id for each in waits.to_save()["answered"]] == ["below"]


def test_what_is_forgotten_is_told_to_nobody(waits: Waits) -> None:
    """A turn whose sub-agents ask all day."""
    for number in range(REMEMBERED_CALLS + 5):
        waits.remember_below(AnsweredCall(id=f"below{number}"))
    assert len(waits.unsaid()) == REMEMBERED_CALLS


def test_a_second_answer_below_does_not_take_the_place_of_the_first(waits: Waits) -> None:
    """Whoever gave the first one and asks again must be told so."""
    waits.remember([AnsweredCall(id="below", when=1, by="first")])
    waits.remember([AnsweredCall(id="below", when=1)])
    assert waits.submit(SubmitInput(call="below", by="first")).status == "submitted"
