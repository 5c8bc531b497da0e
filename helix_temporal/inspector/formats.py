"""How times, amounts and sizes are written on pages; durations and money: `helix_temporal.models.amounts`."""

from datetime import UTC, datetime
from typing import Final

from helix_temporal.models.amounts import DAY, HOUR, MINUTE, SECOND

_UNITS: Final = (("d", DAY), ("h", HOUR), ("min", MINUTE), ("s", SECOND))


def format_time(millis: int | None) -> str:
    """A time in UTC with seconds: ``2026-11-29 06:40:12``; a dash where there is none."""
    return "–" if not millis else f"{_to_datetime(millis):%Y-%m-%d %H:%M:%S}"


def format_iso(millis: int) -> str:
    """A time as HTML's ``datetime`` attribute has it."""
    return _to_datetime(millis).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_day(millis: int | None) -> str:
    """The day in UTC: ``29 Nov 2026``."""
    # `%-d` is not known everywhere.
    return "–" if not millis else f"{_to_datetime(millis):%d %b %Y}".removeprefix("0")


def format_clock(millis: int | None) -> str:
    """The time of the day in UTC: ``06:40:12``."""
    return "–" if not millis else f"{_to_datetime(millis):%H:%M:%S}"


def format_ago(millis: int | None, now: int) -> str:
    """How long ago: ``12 s ago``, ``3 h ago``; the day where that is more than a month ago; ``in 2 d 23 h``.

    What is over is told by its largest unit; what lies ahead by two, so that no day of a deadline is lost.
    """
    if not millis:
        return "–"
    apart = now - millis
    if abs(apart) < 5 * SECOND:
        return "now"
    if apart > 30 * DAY:
        return format_day(millis)
    return f"{_describe_span(apart, 1)} ago" if apart > 0 else f"in {_describe_span(-apart, 2)}"


def format_waited(millis: int, now: int) -> str:
    """For how long already: ``1 s``, ``5 min``, ``2 d 23 h``."""
    return _describe_span(max(0, now - millis), 2)


def format_count(count: int | None) -> str:
    """A number with thin spaces between thousands: ``12 480``."""
    return "–" if count is None else f"{count:,}".replace(",", "\u202f")


def format_tokens(count: int | None) -> str:
    """Tokens in few digits: ``812``, ``12.4k``, ``3.1M``."""
    if count is None:
        return "–"
    if count < 10_000:
        return format_count(count)
    return f"{count / 1000:.1f}k" if count < 999_950 else f"{count / 1_000_000:.1f}M"


def format_bytes(size: int | None) -> str:
    """A size in binary units: ``812 B``, ``12.4 KiB``."""
    if size is None:
        return "–"
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{int(value)} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def format_share(part: float, whole: float) -> str:
    """A share in percent: ``0 %``, ``<1 %``, ``42 %``."""
    if not whole or not part:
        return "0 %"
    percent = 100 * part / whole
    return "<1 %" if percent < 1 else f"{percent:.0f} %"


def count_of(count: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun: ``1 call``, ``3 calls``."""
    return f"{format_count(count)} {noun if count == 1 else plural or noun + 's'}"


def _describe_span(millis: int, parts: int) -> str:
    """In the largest unit; days and hours with the next one as well where ``parts`` is 2."""
    at = next((at for at, (_, unit) in enumerate(_UNITS) if millis >= unit), len(_UNITS) - 1)
    name, unit = _UNITS[at]
    first = f"{max(1, millis // unit)} {name}"
    if parts == 1 or unit < HOUR:
        return first
    below, smaller = _UNITS[at + 1]
    rest = millis % unit // smaller
    return f"{first} {rest} {below}" if rest else first


def _to_datetime(millis: int) -> datetime:
    return datetime.fromtimestamp(min(millis, 253_402_300_799_000) / 1000, UTC)
