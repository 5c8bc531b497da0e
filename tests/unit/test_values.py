"""Which of a session's values are the application's to write."""

from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.session.record import SessionRecord, apply_save
from helix_temporal.session.values import StoredValues, Values, merge_stored_values


def test_only_what_the_application_changed_is_written() -> None:
    """What a tool or another program wrote, and the application merely saw, may have moved on since."""
    known = StoredValues.of({"mine": 1, "theirs": 2, "gone": 3}, stale=True)
    values = {"mine": 5, "theirs": 2, "new": 1}
    assert known.list_changed_keys(values) == ("gone", "mine", "new")
    assert known.list_changed_keys(known.saved) == ()


def test_a_change_within_a_value_is_a_change() -> None:
    """A list that is added to is the same list."""
    values = {"log": ["one"]}
    known = StoredValues.of(values)
    values["log"].append("two")
    assert known.list_changed_keys(values) == ("log",)
    assert known.find_unsaved(values) == values


def test_values_that_the_slice_does_not_have_go_with_the_next_step() -> None:
    """Though the application changed none: the slice is what a lost state is made from."""
    assert StoredValues.of({"a": 1}, stale=True).find_unsaved({"a": 1}) == {"a": 1}
    assert StoredValues.of({"a": 1}).find_unsaved({"a": 1}) is None


def test_what_the_application_changed_during_a_turn_stays() -> None:
    """The store's answer is older than that change; all other keys are as the store says."""
    before = {"mine": 1, "theirs": 1, "removed": 1}
    values = {"mine": 2, "theirs": 1, "removed": 1}
    assert merge_stored_values(values, before, {"mine": 1, "theirs": 7, "tool": 1}) == {
        "mine": 2,
        "theirs": 7,
        "tool": 1,
    }


def test_a_value_that_changes_its_type_alone_changes() -> None:
    """In Python 1, 1.0 and true are equal; the next execution read the old one."""
    known = StoredValues.of({"flag": 0, "same": 1, "deep": {"on": [1]}})
    assert known.list_changed_keys({"flag": False, "same": 1, "deep": {"on": [True]}}) == ("deep", "flag")
    assert merge_stored_values({"n": 1.0}, {"n": 1}, {"n": 1, "tool": 2}) == {"n": 1.0, "tool": 2}
    record = apply_save(SessionRecord(values={"flag": 0}), {"flag": False}, (), EMPTY)
    assert record.values == {"flag": False}
    assert record.values["flag"] is False


def test_a_tool_changes_a_value_that_the_application_keeps_as_a_tuple() -> None:
    """A tuple is no list in Python, and seemed to be a change of the application's, which won."""
    values = Values({"pair": (1, 2), "when": {1}})
    before = StoredValues.of(values.build_storable())
    values.apply_promoted(before, {"pair": [3]})
    assert values.now == {"pair": [3], "when": {1}}
    assert (values.build_storable(), list(values.list_refused())) == ({"pair": [3]}, ["'when'"])
