"""What a tool counts of its own is checked where it counts, not where stores would drop it."""

from decimal import Decimal

import pytest

from helix_temporal.activities.usage import ToolCounts
from helix_temporal.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("name", "value", "unit", "why"),
    [
        ("pages", 0.5, None, "int or Decimal expected, got float"),
        ("pages", True, None, "int or Decimal expected, got bool"),
        ("", 1, None, "characters"),
        ("p" * 257, 1, None, "characters"),
        ("pages\x00", 1, None, "metric"),
        ("pages", 2**63, None, "64"),
        ("fee", Decimal("0.1"), "", "characters"),
    ],
)
def test_what_no_store_would_take_is_refused_when_it_is_counted(
    name: str, value: int | Decimal, unit: str | None, why: str
) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        ToolCounts().record(name, value, unit)


def test_one_name_has_one_unit() -> None:
    """Amounts of a name are summed: dollars and euros would be one number."""
    metrics = ToolCounts()
    metrics.record("fee", 1, "USD")
    metrics.record("fee", 2, "USD")
    with pytest.raises(InvalidRequestError, match="counted in USD before, now in EUR"):
        metrics.record("fee", 3, "EUR")
    with pytest.raises(InvalidRequestError, match="counted in USD before, now in none"):
        metrics.record("fee", 3)
