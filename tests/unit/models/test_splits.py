"""Where a thread may be cut: never between a tool call and its result."""

import pytest

from helix_temporal.errors import InvalidRequestError
from helix_temporal.models.base import only_set, only_truthy
from helix_temporal.models.stored_messages import Kind
from helix_temporal.models.turns import check_split


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, None),
        (None, Kind.USER),
        (Kind.ANSWER, Kind.USER),
        (Kind.RESULT, Kind.ANSWER),
        (Kind.USER, None),
        (None, Kind.RESULT),
    ],
)
def test_a_step_is_not_split_at_its_ends(before: str | None, after: str | None) -> None:
    """Turns and steps may be parted from each other."""
    check_split("thread 't'", 3, before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [(Kind.CALLS, Kind.RESULT), (Kind.RESULT, Kind.RESULT), (Kind.CALLS, None), (Kind.CALLS, Kind.USER)],
)
def test_a_call_is_not_parted_from_its_result(before: str, after: str | None) -> None:
    """Providers refuse a conversation that has one without the other."""
    with pytest.raises(InvalidRequestError, match="thread 't': position 3 is between a tool call"):
        check_split("thread 't'", 3, before, after)


def test_what_is_empty_is_set_all_the_same() -> None:
    """Two rules, one of which also drops what is empty: they are not to be mixed up."""
    assert only_set(a=0, b="", c=None, d=1) == {"a": 0, "b": "", "d": 1}
    assert only_truthy(a=0, b="", c=None, d=1) == {"d": 1}
