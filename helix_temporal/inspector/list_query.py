"""The filter of a list, as it stands in an address: every view of it can be linked and shared."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, get_args

from starlette.datastructures import QueryParams

from helix_temporal.models.states import SessionStatus
from helix_temporal.views.filters import Need, SessionFilter

FIELDS: Final = (
    "user", "agent", "status", "tag", "meta", "since", "until", "when", "need", "roots", "parent",
    "tool", "failed", "session",
)  # fmt: skip
MAX_VALUE: Final = 600
_STATUSES: Final = frozenset(each.value for each in SessionStatus)
_DAY: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class ListQuery:
    """What a list was asked for.

    Attributes:
        values: As they were given, by the parameter's name.
        sessions: Which sessions; ``until`` is left out where it is meant of calls.
        since, until: Milliseconds since 1970, from inclusive, to exclusive.
        problems: What could not be understood, a sentence each; the rest of the filter holds.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    sessions: SessionFilter = field(default_factory=SessionFilter)
    since: int | None = None
    until: int | None = None
    problems: tuple[str, ...] = ()

    def given(self, name: str) -> str:
        """A parameter as it was given, empty where it was not."""
        return self.values.get(name, "")

    def pairs(self, **changed: str) -> dict[str, str]:
        """The parameters of an address with this filter and some values changed; an empty one is left out."""
        if changed.get("when"):
            changed = {"since": "", "until": "", **changed}
        return {name: value for name, value in {**self.values, **changed}.items() if value}

    @property
    def is_narrowed(self) -> bool:
        """Whether anything is filtered."""
        return bool(self.values)

    @property
    def failed(self) -> bool | None:
        """Whether calls that failed are wanted, or those that did not; None: all."""
        return {"1": True, "0": False}.get(self.given("failed"))


def read_query(params: QueryParams, now: int) -> ListQuery:
    """The filter that an address asks for; what it can't mean is told in ``problems``.

    Args:
        params: Of the request.
        now: Milliseconds since 1970.
    """
    values = {name: params[name].strip()[:MAX_VALUE] for name in FIELDS if params.get(name, "").strip()}
    problems: list[str] = []
    since, until = _read_period(values, now, problems)
    wanted: dict[str, Any] = {
        "user_id": values.get("user"),
        "agent": values.get("agent"),
        "parent_session_id": values.get("parent"),
        "tags": _split(values.get("tag", "")),
        "metadata": _read_metadata(values.get("meta", ""), problems),
        "roots": values.get("roots") == "1",
        "since": since,
        "until": until,
    }
    status, need = values.get("status", ""), values.get("need", "")
    if status:
        _check(status, _STATUSES, "status", problems)
        wanted["status"] = (SessionStatus(status),) if status in _STATUSES else ()
    if need and _check(need, frozenset(get_args(Need)), "need", problems):
        wanted["need"] = need
    return ListQuery(values, SessionFilter(**wanted), since, until, tuple(problems))


def widen_for_calls(query: ListQuery) -> SessionFilter:
    """The sessions in which calls of the query's period may be: also those that went on after it."""
    return query.sessions.model_copy(update={"until": None})


def read_time(text: str) -> int | None:
    """A time in milliseconds since 1970; None for what isn't one.

    ``2026-11-28`` is the begin of that day in UTC; ``2026-11-28T14:00`` has a time, and may have an offset.
    """
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    aware = found if found.tzinfo else found.replace(tzinfo=UTC)
    millis = int(aware.timestamp() * 1000)
    return millis if millis >= 0 else None


def _read_period(values: Mapping[str, str], now: int, problems: list[str]) -> tuple[int | None, int | None]:
    today = int(
        datetime.fromtimestamp(now / 1000, UTC).replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    )
    presets: dict[str, tuple[int | None, int | None]] = {
        "today": (today * 1000, None),
        "yesterday": (today * 1000 - _DAY, today * 1000),
        "week": (now - 7 * _DAY, None),
    }
    when = values.get("when", "")
    if when and _check(when, frozenset(presets), "when", problems):
        return presets[when]
    times = {name: _read_time_of(values.get(name, ""), name, problems) for name in ("since", "until")}
    return times["since"], times["until"]


def _read_time_of(text: str, name: str, problems: list[str]) -> int | None:
    if not text:
        return None
    found = read_time(text)
    if found is None:
        problems.append(f"{name}: {text!r} is no time; write 2026-11-28 or 2026-11-28T14:00, in UTC")
    return found


def _read_metadata(text: str, problems: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in _split(text):
        name, equals, value = pair.partition("=")
        if equals and name.strip():
            found[name.strip()] = value.strip()
        else:
            problems.append(f"metadata: {pair!r} is no pair; write key=value, several with commas between")
    return found


def _split(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())


def _check(value: str, known: frozenset[str], name: str, problems: list[str]) -> bool:
    if value in known:
        return True
    problems.append(f"{name}: {value!r} is not one of {', '.join(sorted(known))}")
    return False
