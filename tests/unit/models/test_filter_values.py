"""Times and pairs as people give them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from helix_temporal.models.filter_values import parse_pair, parse_time

NOW = datetime(2026, 11, 29, 1, 30, tzinfo=timezone(timedelta(hours=2)))
"""23:30 of the day before in UTC."""


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("now", "2026-11-28T23:30:00+00:00"),
        ("30m", "2026-11-28T23:00:00+00:00"),
        ("1.5h", "2026-11-28T22:00:00+00:00"),
        ("2d", "2026-11-26T23:30:00+00:00"),
        ("1w", "2026-11-21T23:30:00+00:00"),
        ("today", "2026-11-28T00:00:00+00:00"),
        ("Yesterday", "2026-11-27T00:00:00+00:00"),
        ("2026-11-01", "2026-11-01T00:00:00+00:00"),
        ("2026-11-01T10:00", "2026-11-01T10:00:00+00:00"),
        ("2026-11-01T10:00:00Z", "2026-11-01T10:00:00+00:00"),
        ("2026-11-01T10:00+02:00", "2026-11-01T08:00:00+00:00"),
    ],
)
def test_a_time_is_how_long_ago_a_day_or_a_date(text: str, meant: str) -> None:
    """Days are those of UTC, in which times are printed."""
    assert datetime.fromtimestamp(parse_time(text, NOW) / 1000, UTC).isoformat() == meant


@pytest.mark.parametrize("text", ["", "soon", "2 moons", "2026-13-01", "-2h", "999999999999d", "1e9h"])
def test_anything_else_is_refused(text: str) -> None:
    """A misspelt time must not list all sessions; the message says what is a time."""
    with pytest.raises(ValueError, match="yesterday"):
        parse_time(text, NOW)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("plan=gold", ("plan", "gold")),
        (" a = b ", ("a", " b ")),
        ("a=b=c", ("a", "b=c")),
        ("a=", ("a", "")),
    ],
)
def test_a_pair_has_a_key_and_a_value(text: str, meant: tuple[str, str]) -> None:
    """A value may be empty, or have blanks and signs of its own."""
    assert parse_pair(text) == meant


@pytest.mark.parametrize("text", ["", "plan", "=gold", "  =gold"])
def test_what_is_no_pair_is_refused(text: str) -> None:
    """It would be a filter that finds nothing."""
    with pytest.raises(ValueError, match="key=value expected"):
        parse_pair(text)
