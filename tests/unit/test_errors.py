"""Errors on their way through Temporal: a type and a message become the error again."""

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from helix_temporal.client._updates import root_error
from helix_temporal.errors import (
    FencedError,
    InvalidRequestError,
    StreamClosedError,
    TooLargeError,
    error_class,
    error_of_text,
    for_caller,
    from_wire,
)


def test_an_error_comes_back_with_its_facts() -> None:
    """Workflows decide by the class and by what was found."""
    error = from_wire("FencedError", "epoch 2 has it, 1 is out", [{"epoch": 1, "current": 2}])
    assert isinstance(error, FencedError)
    assert (str(error), error.facts) == ("epoch 2 has it, 1 is out", {"epoch": 1, "current": 2})


def test_a_client_gets_the_facts_of_what_failed_below() -> None:
    """They were there with ``stores=`` alone, and the guide tells people to look at them."""
    failed = ApplicationError("4 > 3 bytes", {"size": 4, "limit": 3}, type="TooLargeError")
    told = for_caller("TooLargeError", "", failed.details)
    for found in (root_error(WorkflowUpdateFailedError(failed)), told):
        assert isinstance(found, TooLargeError)
        assert found.facts == {"size": 4, "limit": 3}


@pytest.mark.parametrize("kind", ["KeyError", "ClassVar", "error_class", ""])
def test_a_type_of_somebody_else_is_none_of_ours(kind: str) -> None:
    """Not even one that this module happens to have under that name."""
    assert error_class(kind) is None
    assert from_wire(kind, "what") is None


def test_a_client_raises_the_error_of_a_text() -> None:
    """What a workflow tells as text has its type in front."""
    error = error_of_text("StreamClosedError: it ended: at 7")
    assert (type(error), str(error)) == (StreamClosedError, "it ended: at 7")


@pytest.mark.parametrize("text", ["KeyError: 'a'", "no type at all", ""])
def test_a_text_of_a_foreign_type_stays_whole(text: str) -> None:
    """Its type is all that says what happened."""
    error = error_of_text(text)
    assert (type(error), str(error)) == (InvalidRequestError, text)


def test_a_time_out_stays_one_for_the_caller() -> None:
    """Callers catch Python's own."""
    assert isinstance(for_caller("TimeoutError", "late"), TimeoutError)
