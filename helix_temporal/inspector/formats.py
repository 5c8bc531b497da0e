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
    """How long ago: ``12 s ago``, ``3 h ago``; the day where that is more than a month ago; ``in 2 h``."""
    if not millis:
        return "–"
    apart = now - millis
    if abs(apart) < 5 * SECOND:
        return "now"
    if apart > 30 * DAY:
        return format_day(millis)
    return f"{_in_one_unit(apart)} ago" if apart > 0 else f"in {_in_one_unit(-apart)}"


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


def _in_one_unit(millis: int) -> str:
    found = next(((name, unit) for name, unit in _UNITS if millis >= unit), ("s", SECOND))
    return f"{max(1, millis // found[1])} {found[0]}"


def _to_datetime(millis: int) -> datetime:
    return datetime.fromtimestamp(min(millis, 253_402_300_799_000) / 1000, UTC)
