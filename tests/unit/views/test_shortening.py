"""Texts and values cut for a page."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from helix_temporal.views.shortening import count_characters, shorten_text, shorten_value

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=50),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=8), inner, max_size=8),
    max_leaves=60,
)


@given(VALUES, st.integers(1, 200))
def test_a_cut_value_is_small_and_says_that_it_was_cut(value: Any, most: int) -> None:
    """A page stays small whatever a tool gives; what is whole is not said to be cut."""
    shown, left_out = shorten_value(value, most)
    json.dumps(shown)
    assert (left_out == 0) <= (shown == value)
    whole = count_characters(value)
    assert (shown, left_out) == (value, 0) if whole <= most else True
    # Each of the values that fit may bring one pair of quotes or brackets, and a number of 17 digits.
    assert count_characters(shown) <= 6 * most + 40


@given(VALUES)
def test_without_a_limit_all_is_shown(value: Any) -> None:
    """Whoever opens a message sees all of it."""
    assert shorten_value(value, None) == (value, 0)


def test_a_text_says_how_many_characters_are_left_out() -> None:
    """The page offers the rest."""
    assert shorten_text("abcdef", 4) == ("abcd", 2)
    assert shorten_text("abcd", 4) == ("abcd", 0)
    assert shorten_value({"a": "x" * 10, "b": 1}, 8) == ({"a": "x" * 6}, 6)
