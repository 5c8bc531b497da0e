"""How amounts are written: the same everywhere, and never wrong at an edge."""

from decimal import Decimal

import pytest

from helix_temporal.inspector import formats
from helix_temporal.models import amounts

NOW = 1_764_398_412_000
SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("millis", "text"),
    [
        (None, "–"),
        (0, "0 ms"),
        (999, "999 ms"),
        (3_240, "3.2 s"),
        (250_000, "4 min 10 s"),
        (2 * HOUR + 5 * MINUTE, "2 h 5 min"),
        (26 * HOUR, "1 d 2 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(millis: int | None, text: str) -> None:
    """Whoever compares two calls reads their sizes at a glance."""
    assert amounts.format_duration(millis) == text


@pytest.mark.parametrize(
    ("ago", "text"),
    [
        (0, "now"),
        (8 * SECOND, "8 s ago"),
        (41 * MINUTE, "41 min ago"),
        (26 * HOUR, "1 d ago"),
        (31 * DAY, "29 Oct 2025"),
        (-2 * HOUR, "in 2 h"),
        (-(3 * DAY - HOUR), "in 2 d 23 h"),
        (-90 * MINUTE, "in 1 h 30 min"),
        (-90 * SECOND, "in 1 min"),
    ],
)
def test_a_time_is_told_by_how_long_ago_it_was(ago: int, text: str) -> None:
    """A deadline lies ahead; what is older than a month is a date."""
    assert formats.format_ago(NOW - ago, NOW) == text


@pytest.mark.parametrize(
    ("waited", "text"),
    [
        (0, "1 s"),
        (-5 * MINUTE, "1 s"),
        (59 * SECOND, "59 s"),
        (3 * MINUTE, "3 min"),
        (3 * DAY - 1, "2 d 23 h"),
        (2 * DAY, "2 d"),
    ],
)
def test_a_wait_is_told_by_how_long_it_takes_already(waited: int, text: str) -> None:
    """A page said "since now" and "since 1 min ago", and "2 d" of three days less an hour."""
    assert formats.format_waited(NOW - waited, NOW) == text


def test_a_time_that_is_not_known_is_a_dash() -> None:
    """The year 1970 would be read as a time."""
    assert (formats.format_time(None), formats.format_time(0), formats.format_ago(0, NOW)) == ("–", "–", "–")


def test_a_time_is_in_utc_with_seconds() -> None:
    """So two people in two places speak of the same line of a log."""
    assert formats.format_time(NOW) == "2025-11-29 06:40:12"


def test_a_time_beyond_the_calendar_is_shown_as_its_last_second() -> None:
    """A broken clock must not break the page."""
    assert formats.format_time(2**62) == "9999-12-31 23:59:59"


@pytest.mark.parametrize(
    ("count", "text"),
    [(812, "812"), (9_999, "9\u202f999"), (12_400, "12.4k"), (999_949, "999.9k"), (3_100_000, "3.1M")],
)
def test_tokens_have_few_digits(count: int, text: str) -> None:
    """A column of them stays narrow, and 999 950 is not 1000.0k."""
    assert formats.format_tokens(count) == text


@pytest.mark.parametrize(
    ("usd", "text"),
    [(None, "–"), ("0", "$0.00"), ("0.0121", "$0.0121"), ("0.8112", "$0.81"), ("1234.5", "$1,234.50")],
)
def test_a_cost_below_ten_cents_has_four_digits(usd: str | None, text: str) -> None:
    """A single call costs a fraction of a cent: two digits would show nothing."""
    assert amounts.format_cost(None if usd is None else Decimal(usd)) == text


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 * 1024**4, "5.0 TiB")]
)
def test_sizes_are_in_binary_units(size: int, text: str) -> None:
    """As the limits of the stores are."""
    assert formats.format_bytes(size) == text


@pytest.mark.parametrize(("part", "text"), [(0, "0 %"), (1, "<1 %"), (420, "42 %"), (1000, "100 %")])
def test_a_small_share_is_not_nothing(part: int, text: str) -> None:
    """What costs a little still costs."""
    assert formats.format_share(part, 1000) == text


def test_one_is_not_plural() -> None:
    """As people write."""
    assert (formats.count_of(1, "call"), formats.count_of(3, "call")) == ("1 call", "3 calls")
