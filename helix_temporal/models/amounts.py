"""How durations and sums of money are written for people: the same in commands and on pages."""

from decimal import Decimal
from typing import Final

NOTHING: Final = "–"
SECOND: Final = 1000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR


def format_duration(millis: int | None) -> str:
    """A duration in its two largest units: ``840 ms``, ``3.2 s``, ``4 min 10 s``, ``2 h 5 min``."""
    if millis is None:
        return NOTHING
    if millis < SECOND:
        return f"{millis} ms"
    if millis < MINUTE:
        return f"{millis / SECOND:.1f} s"
    if millis < HOUR:
        return f"{millis // MINUTE} min {millis % MINUTE // SECOND} s"
    if millis < DAY:
        return f"{millis // HOUR} h {millis % HOUR // MINUTE} min"
    return f"{millis // DAY} d {millis % DAY // HOUR} h"


def format_cost(usd: Decimal | str | None) -> str:
    """US dollars: two digits, or four below ten cents; a dash where nothing is known."""
    if usd is None:
        return NOTHING
    usd = Decimal(usd)
    return f"${usd:.4f}" if 0 < usd < Decimal("0.1") else f"${usd:,.2f}"
