"""Times and pairs as people give them to filters: of commands, and on pages."""

import re
from datetime import UTC, datetime, time, timedelta
from typing import Final

_AGO: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d|w)")
_SECONDS: Final = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DAYS_AGO: Final = {"today": 0, "yesterday": 1}
_EXPECTED: Final = "a time such as 30m, 2h, 7d (ago), today, yesterday, 2026-11-29 or 2026-11-29T14:30 (UTC)"


def parse_time(text: str, now: datetime) -> int:
    """The time that is meant, in milliseconds since 1970.

    Args:
        text: How long ago (``2h``), ``now``, a day (``yesterday`` is its begin), or a date with or without a
            time as in ISO 8601; without a zone it is UTC.
        now: With a zone.

    Raises:
        ValueError: It is none of these; the message says what is.
    """
    return max(0, int(_find_time(text.strip(), now).timestamp() * 1000))


def _find_time(text: str, now: datetime) -> datetime:
    if text.lower() == "now":
        return now
    if text.lower() in _DAYS_AGO:
        day = now.astimezone(UTC).date() - timedelta(days=_DAYS_AGO[text.lower()])
        return datetime.combine(day, time(), UTC)
    try:
        if ago := _AGO.fullmatch(text.lower()):
            return now - timedelta(seconds=float(ago[1]) * _SECONDS[ago[2]])
        found = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise ValueError(f"{text[:40]!r} is no time; {_EXPECTED} expected") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def parse_pair(text: str) -> tuple[str, str]:
    """The two sides of ``key=value``; the value stays as it is: it may be empty, and have signs and blanks.

    Raises:
        ValueError: There is no key, or no ``=``; the message says what is expected.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"{text[:80]!r} is no pair; key=value expected")
    return key.strip(), value
