"""What is remembered within a bound."""

from helix_temporal.models.newest import Newest


def test_the_entries_that_were_set_last_are_kept() -> None:
    """An entry that is set again is a new one."""
    kept = Newest[str, int](2, [("a", 1), ("b", 2)])
    kept["a"] = 3
    kept["c"] = 4
    assert list(kept.items()) == [("a", 3), ("c", 4)]


def test_more_than_the_limit_at_once_leaves_the_last_ones() -> None:
    """As one after the other."""
    kept = Newest[str, int](2)
    kept |= dict.fromkeys("abcd", 0)
    assert list(kept) == ["c", "d"]
