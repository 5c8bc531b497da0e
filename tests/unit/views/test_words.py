"""What people read of statuses, errors and reasons."""

from typing import get_args

import pytest

from helix_temporal.models.checkpoints import RunStatus
from helix_temporal.models.states import ErrorInfo, SessionStatus
from helix_temporal.views import words
from helix_temporal.views.models import CallStatus, TurnAttempt


def an_attempt(**fields: object) -> TurnAttempt:
    return TurnAttempt.model_validate({"run_id": "r", "turn": 1, **fields})


def test_every_status_has_a_word() -> None:
    """A new one must not break a page or a command that meets it first."""
    assert set(words.SESSION_WORDS) == set(SessionStatus)
    assert set(words.RUN_WORDS) == set(RunStatus)
    assert set(words.CALL_WORDS) == set(get_args(CallStatus))


def test_a_status_is_found_by_all_of_its_names() -> None:
    """A filter takes what a list says, and what JSON says."""
    assert {each.value for each in words.StatusName} == {
        *words.SESSION_WORDS.values(),
        *(each.value for each in SessionStatus),
    }
    names = [words.StatusName("waiting"), words.StatusName("paused")]
    assert {words.find_named_status(each) for each in names} == {SessionStatus.PAUSED}


def test_an_error_is_told_with_its_type_once() -> None:
    """Some stores have the type in the message, some beside it."""
    told = [
        words.describe_error(ErrorInfo(type=kind, message=message))
        for kind, message in (("KeyError", "x"), ("", "KeyError: x"), ("KeyError", "KeyError: x"), ("A", ""))
    ]
    assert told == ["KeyError: x", "KeyError: x", "KeyError: x", "A"]


def test_a_turn_that_was_taken_back_is_told_so() -> None:
    """After a rewind each said "Discarded attempt … completed", and nothing said why."""
    lost = an_attempt(kept=False, status=RunStatus.COMPLETED, reason="completed")
    assert words.find_reason(lost) == "taken back or lost later"
    assert not words.find_reason(an_attempt(status=RunStatus.COMPLETED, reason="completed"))


@pytest.mark.parametrize("error", [None, ErrorInfo(type="", message="no answer")])
def test_a_reason_says_more_than_the_status(error: ErrorInfo | None) -> None:
    """A run was "failed (failed)"; its error tells why."""
    lost = an_attempt(kept=False, status=RunStatus.FAILED, reason="failed", error=error)
    assert words.find_reason(lost) == ("" if error is None else "no answer")
