"""Differences of JSON values: what a person sees of a state that changed."""

from typing import Any

import pytest

from helix_temporal.views.differences import compare_values


def changes_between(before: Any, after: Any) -> list[tuple[str, str]]:
    """The places and kinds of all differences."""
    return [(each.path, each.change) for each in compare_values(before, after).found]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, [("/a", "changed")]),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, [("/a/b/1", "changed")]),
        ({"a": 1, "b": 2}, {"b": 2, "c": 3}, [("/a", "removed"), ("/c", "added")]),
        ({"a": {}}, {"a": []}, [("/a", "changed")]),
        ({"a": None}, {}, [("/a", "removed")]),
        (1, 2, [("", "changed")]),
    ],
)
def test_a_difference_is_told_where_it_is(
    before: object, after: object, expected: list[tuple[str, str]]
) -> None:
    """Of a state of thousands of values a person wants those that the step changed."""
    assert changes_between(before, after) == expected


@pytest.mark.parametrize(("before", "after"), [(True, 1), (0, False), (1, 1.0), ("1", 1), (None, False)])
def test_values_of_other_types_differ(before: object, after: object) -> None:
    """Python takes True for 1; a tool that wrote the one for the other did change the state."""
    assert changes_between({"a": before}, {"a": after}) == [("/a", "changed")]
    assert changes_between([before], [after]) == [("/0", "changed")]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (["a", "b"], ["x", "a", "b"], [("/0", "added")]),
        (["a", "b", "c"], ["a", "c"], [("/1", "removed")]),
        (["a"], ["a", "b", "c"], [("/1", "added"), ("/2", "added")]),
        (["a", {"n": 1}, "c"], ["a", {"n": 2}, "c"], [("/1/n", "changed")]),
        (["a", "a"], ["a"], [("/1", "removed")]),
        ([], [None], [("/0", "added")]),
    ],
)
def test_an_item_put_in_between_is_one_difference(
    before: list[Any], after: list[Any], expected: list[tuple[str, str]]
) -> None:
    """Compared place by place, all items after it would differ, and nobody would see which one is new."""
    assert changes_between(before, after) == expected


def test_paths_are_json_pointers() -> None:
    """A program looks the place up with any library for RFC 6901."""
    assert changes_between({}, {"a/b~c": 1, "": 2}) == [("/a~1b~0c", "added"), ("/", "added")]


def test_differences_hold_both_values() -> None:
    """One that was added has none before, also where the new value is null."""
    found = compare_values({"a": 1}, {"a": 2, "b": None}).found
    assert [(each.before, each.after) for each in found] == [(None, None), (1, 2)]


def test_too_many_differences_are_counted() -> None:
    """A list of a hundred thousand items that was emptied must not fill a page."""
    found = compare_values(list(range(1_000)), [], most=10)
    assert (len(found.found), found.cut) == (10, 990)


def test_values_may_lie_deep() -> None:
    """A store takes objects within objects within objects; Python's recursion has an end."""
    before: Any = 1
    after: Any = 2
    for _ in range(200):
        before, after = {"a": before}, {"a": after}
    assert changes_between(before, after) == [("/a" * 200, "changed")]
