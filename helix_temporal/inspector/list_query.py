"""The filter of a list, as it stands in an address: every view of it can be linked and shared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, get_args

from starlette.datastructures import QueryParams

from helix_temporal.models.filter_values import parse_pair, parse_time
from helix_temporal.models.states import SessionStatus
from helix_temporal.views.filters import Need, SessionFilter

FIELDS: Final = (
    "user", "agent", "status", "since", "until", "when", "need", "roots", "parent", "tool", "failed",
    "session",
)  # fmt: skip
REPEATABLE: Final = ("tag", "meta")
"""Given once for each value, as options of commands are: a value may have commas."""
MAX_VALUE: Final = 600
_FAILED: Final = {"1": True, "0": False}
_STATUSES: Final = frozenset(each.value for each in SessionStatus)


@dataclass(frozen=True, slots=True)
class ListQuery:
    """What a list was asked for.

    Attributes:
        values: As they were given, by the parameter's name.
        repeated: Values of those parameters that may be given several times.
        sessions: Which sessions; ``until`` is left out where it is meant of calls.
        since, until: Milliseconds since 1970, from inclusive, to exclusive.
        problems: What could not be understood, a sentence each; the rest of the filter holds.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    repeated: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sessions: SessionFilter = field(default_factory=SessionFilter)
    since: int | None = None
    until: int | None = None
    problems: tuple[str, ...] = ()

    def given(self, name: str) -> str:
        """A parameter as it was given, empty where it was not."""
        return self.values.get(name, "")

    def list_given(self, name: str) -> tuple[str, ...]:
        """All values of a parameter that may be given several times."""
        return self.repeated.get(name, ())

    def pairs(self, **changed: str) -> dict[str, str | tuple[str, ...]]:
        """The parameters of an address with this filter and some values changed; an empty one is left out."""
        if changed.get("when"):
            changed = {"since": "", "until": "", **changed}
        given: dict[str, str | tuple[str, ...]] = {**self.values, **self.repeated, **changed}
        return {name: value for name, value in given.items() if value}

    @property
    def is_narrowed(self) -> bool:
        """Whether anything is filtered."""
        return bool(self.values or self.repeated)

    @property
    def failed(self) -> bool | None:
        """Whether calls that failed are wanted, or those that did not; None: all."""
        return _FAILED.get(self.given("failed"))


def read_query(params: QueryParams, now: int) -> ListQuery:
    """The filter that an address asks for; what it can't mean is told in ``problems``.

    Args:
        params: Of the request.
        now: Milliseconds since 1970.
    """
    values = {name: params[name].strip()[:MAX_VALUE] for name in FIELDS if params.get(name, "").strip()}
    given = {name: _list_values(params, name) for name in REPEATABLE}
    repeated = {name: each for name, each in given.items() if each}
    problems: list[str] = []
    since, until = _read_period(values, now, problems)
    wanted: dict[str, Any] = {
        "user_id": values.get("user"),
        "agent": values.get("agent"),
        "parent_session_id": values.get("parent"),
        "tags": repeated.get("tag", ()),
        "metadata": _read_metadata(repeated.get("meta", ()), problems),
        "roots": values.get("roots") == "1",
        "since": since,
        "until": until,
    }
    status, need = values.get("status", ""), values.get("need", "")
    if status:
        _check(status, _STATUSES, "status", problems)
        wanted["status"] = (SessionStatus(status),) if status in _STATUSES else ()
    if values.get("failed"):
        _check(values["failed"], frozenset(_FAILED), "failed", problems)
    if need and _check(need, frozenset(get_args(Need)), "need", problems):
        wanted["need"] = need
    return ListQuery(values, repeated, SessionFilter(**wanted), since, until, tuple(problems))


def widen_for_calls(query: ListQuery) -> SessionFilter:
    """The sessions in which calls of the query's period may be: also those that went on after it."""
    return query.sessions.model_copy(update={"until": None})


def _read_period(values: Mapping[str, str], now: int, problems: list[str]) -> tuple[int | None, int | None]:
    at = datetime.fromtimestamp(now / 1000, UTC)
    today = parse_time("today", at)
    presets: dict[str, tuple[int | None, int | None]] = {
        "today": (today, None),
        "yesterday": (parse_time("yesterday", at), today),
        "week": (parse_time("7d", at), None),
    }
    when = values.get("when", "")
    if when and _check(when, frozenset(presets), "when", problems):
        return presets[when]
    times = {name: _read_time_of(values.get(name, ""), name, at, problems) for name in ("since", "until")}
    return times["since"], times["until"]


def _read_time_of(text: str, name: str, now: datetime, problems: list[str]) -> int | None:
    if not text:
        return None
    try:
        return parse_time(text, now)
    except ValueError as error:
        problems.append(f"{name}: {error}")
        return None


def _read_metadata(pairs: Sequence[str], problems: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        try:
            name, value = parse_pair(pair)
        except ValueError as error:
            problems.append(f"metadata: {error}")
        else:
            found[name] = value.strip()
    return found


def _list_values(params: QueryParams, name: str) -> tuple[str, ...]:
    return tuple(each.strip()[:MAX_VALUE] for each in params.getlist(name) if each.strip())


def _check(value: str, known: frozenset[str], name: str, problems: list[str]) -> bool:
    if value in known:
        return True
    problems.append(f"{name}: {value!r} is not one of {', '.join(sorted(known))}")
    return False
