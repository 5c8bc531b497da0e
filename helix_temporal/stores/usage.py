"""Usage above the backends: arguments are checked, entries chosen and added up, here and once."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Context, Decimal
from functools import reduce
from typing import Final, get_args

from pydantic import TypeAdapter, ValidationError

from helix_temporal.errors import HelixError, InvalidRequestError, StoreCorruptError
from helix_temporal.models.base import canonical_json
from helix_temporal.models.ids import validate_id
from helix_temporal.models.store_calls import Page
from helix_temporal.models.usage import (
    CallStats,
    CustomUsageEntry,
    StepRange,
    SubAgentStats,
    SubAgentUsageEntry,
    TokenSums,
    TokenUsageEntry,
    ToolStats,
    ToolUsageEntry,
    UsageEntry,
    UsageKind,
    UsageQuery,
    UsageRollup,
)
from helix_temporal.stores.paging import decode_cursor, encode_cursor

MOST_ENTRIES: Final = 10_000
MOST_IN_PAGE: Final = 200

_ENTRY: Final[TypeAdapter[UsageEntry]] = TypeAdapter(UsageEntry)
_KINDS: Final = frozenset(get_args(UsageKind))
_EXACT: Final = Context(prec=200)
"""More digits than any sum can have: the default context would round the 29th."""


@dataclass(frozen=True, slots=True)
class UsageFilter:
    """Which entries; None means that anything will do."""

    kinds: frozenset[str] | None = None
    session_id: str | None = None
    run_id: str | None = None
    agent_type: str | None = None
    first_step: int | None = None
    last_step: int | None = None
    since: int | None = None
    until: int | None = None

    # copies: postgres, sqlite
    def matches(self, entry: UsageEntry) -> bool:
        """Whether the entry is one of them."""
        return (
            (self.kinds is None or entry.kind in self.kinds)
            and (self.session_id is None or entry.session_id == self.session_id)
            and (self.run_id is None or entry.run_id == self.run_id)
            and (self.agent_type is None or entry.agent_type == self.agent_type)
            and (self.first_step is None or entry.step_count >= self.first_step)
            and (self.last_step is None or entry.step_count <= self.last_step)
            and (self.since is None or entry.timestamp >= self.since)
            and (self.until is None or entry.timestamp < self.until)
        )


# copies: postgres, sqlite
def select_entries(entries: Iterable[UsageEntry], wanted: UsageFilter) -> list[UsageEntry]:
    """Those that match, in the order of all listings: by time, then session, then id."""
    found = [entry for entry in entries if wanted.matches(entry)]
    return sorted(found, key=lambda entry: (entry.timestamp, entry.session_id, entry.id))


def page_of_entries(entries: Sequence[UsageEntry], limit: int | None, offset: int) -> list[UsageEntry]:
    """One page of them."""
    return list(entries[offset : None if limit is None else offset + limit])


# ---- bytes ------------------------------------------------------------------------------------------


def to_body(entry: UsageEntry) -> bytes:
    """The entry as it is stored."""
    return canonical_json(entry.model_dump(mode="json", exclude_none=True))


def from_body(body: bytes, where: str) -> UsageEntry:
    """Inverse of `to_body`.

    Raises:
        StoreCorruptError: It is not an entry, or one of a newer version.
    """
    try:
        return _ENTRY.validate_json(body)
    except (ValidationError, HelixError) as error:
        raise StoreCorruptError(
            f"{where}: {len(body)} bytes that are no usage entry of this version; restore it, or upgrade"
        ) from error


def agent_types(bodies: Iterable[bytes]) -> set[str]:
    """Of the bodies that can be read: what is to be deleted may be damaged."""
    found = set()
    for body in bodies:
        with suppress(StoreCorruptError):
            found.add(from_body(body, "usage").agent_type)
    return found


# ---- arguments --------------------------------------------------------------------------------------


def of_session(
    session_id: str, kinds: Collection[UsageKind] | None, steps: StepRange | None, run_id: str | None
) -> UsageFilter:
    """What `UsageStore.get_entries` is asked for.

    Raises:
        InvalidIdError, InvalidRequestError: An argument is not acceptable.
    """
    steps = steps or StepRange()
    _in_order(steps.min, steps.max, "step_range")
    return UsageFilter(
        kinds=_check_kinds(kinds),
        session_id=validate_id(session_id, "session id"),
        run_id=None if run_id is None else validate_id(run_id, "run id"),
        first_step=steps.min,
        last_step=steps.max,
    )


def of_query(query: UsageQuery) -> UsageFilter:
    """What `UsageStore.query_usage` is asked for.

    Raises:
        InvalidRequestError: An argument is not acceptable.
    """
    _in_order(query.since, query.until, "since and until")
    return UsageFilter(
        kinds=_check_kinds(query.kinds),
        session_id=query.session_id,
        run_id=query.run_id,
        agent_type=query.agent_type,
        since=query.since,
        until=query.until,
    )


def check_page(limit: object, offset: object, most: int) -> None:
    """Refuse what is no page.

    Raises:
        InvalidRequestError: It says what is allowed.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= most:
        raise InvalidRequestError(f"limit: 1 to {most} expected")
    if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset < 2**63:
        raise InvalidRequestError("offset: 0 or more expected")


def _check_kinds(kinds: Collection[str] | None) -> frozenset[str] | None:
    if kinds is None:
        return None
    if isinstance(kinds, str) or not _KINDS.issuperset(kinds):
        raise InvalidRequestError(f"kinds: some of {', '.join(sorted(_KINDS))} expected")
    return frozenset(kinds)


def _in_order(first: int | None, last: int | None, what: str) -> None:
    for each in (first, last):
        if each is not None and not -(2**63) <= each < 2**63:
            raise InvalidRequestError(f"{what}: numbers of 64 bits expected")
    if first is not None and last is not None and first > last:
        raise InvalidRequestError(f"{what}: {first} to {last} is no range; the smaller one comes first")


# ---- sums -------------------------------------------------------------------------------------------


def sub_session_ids(entries: Iterable[UsageEntry]) -> list[str]:
    """The sessions of sub-agents that entries lead to, each once, in the order of the entries."""
    found = (entry.sub_session_id for entry in entries if isinstance(entry, SubAgentUsageEntry))
    return list(dict.fromkeys(found))


def roll_up(entries: Mapping[str, Sequence[UsageEntry]]) -> UsageRollup | None:
    """The sums over the entries of sessions; None if there is no entry."""
    every = [entry for each in entries.values() for entry in each]
    if not every:
        return None
    sums = _Sums()
    for entry in every:
        sums.add(entry)
    times = [entry.timestamp for entry in every]
    return UsageRollup(
        session_ids=tuple(session_id for session_id, each in entries.items() if each),
        tokens=TokenSums(**sums.tokens),
        tokens_by_model={name: TokenSums(**counts) for name, counts in sums.by_model.items()},
        tool_stats=ToolStats(
            **sums.tools, by_tool={name: CallStats(**each) for name, each in sums.by_tool.items()}
        ),
        sub_agent_stats=SubAgentStats(
            **sums.sub_agents, by_type={name: CallStats(**each) for name, each in sums.by_type.items()}
        ),
        custom=sums.custom,
        cost_usd=sums.cost,
        entry_count=len(every),
        first_at=min(times),
        last_at=max(times),
    )


def exact_sum(one: int | Decimal, other: int | Decimal) -> int | Decimal:
    """The exact sum: an int if both are."""
    if isinstance(one, int) and isinstance(other, int):
        return one + other
    return _EXACT.add(Decimal(one), Decimal(other))


def sum_costs(costs: Iterable[Decimal | None]) -> Decimal | None:
    """The exact sum of those that are known; None where none is."""
    known = [each for each in costs if each is not None]
    return reduce(_EXACT.add, known) if known else None


_Counts = dict[str, int]


@dataclass(slots=True)
class _Sums:
    """Where sums grow."""

    tokens: _Counts = field(default_factory=dict)
    by_model: dict[str, _Counts] = field(default_factory=dict)
    tools: _Counts = field(default_factory=dict)
    by_tool: dict[str, _Counts] = field(default_factory=dict)
    sub_agents: _Counts = field(default_factory=dict)
    by_type: dict[str, _Counts] = field(default_factory=dict)
    custom: dict[str, dict[str, int | Decimal]] = field(default_factory=dict)
    cost: Decimal | None = None

    def add(self, entry: UsageEntry) -> None:
        """Add one entry."""
        if isinstance(entry, TokenUsageEntry):
            counts = entry.tokens.model_dump()
            _add_counts(self.tokens, counts)
            _add_counts(self.by_model.setdefault(entry.model, {}), counts)
            self.cost = sum_costs((self.cost, entry.cost_usd))
        elif isinstance(entry, ToolUsageEntry):
            _add_call(entry, self.tools, self.by_tool.setdefault(entry.tool_name, {}))
        elif isinstance(entry, SubAgentUsageEntry):
            _add_call(entry, self.sub_agents, self.by_type.setdefault(entry.agent_type, {}))
        elif isinstance(entry, CustomUsageEntry):
            keys = self.custom.setdefault(entry.metric, {})
            keys[entry.key] = exact_sum(keys.get(entry.key, 0), entry.amount)


def _add_call(entry: ToolUsageEntry | SubAgentUsageEntry, *sums: _Counts) -> None:
    counts = {
        "total_calls": 1,
        "success": int(entry.success),
        "failed": int(not entry.success),
        "total_duration_ms": entry.duration_ms,
    }
    for each in sums:
        _add_counts(each, counts)


def _add_counts(sums: _Counts, counts: Mapping[str, int]) -> None:
    for name, count in counts.items():
        sums[name] = sums.get(name, 0) + count


_LIST: Final = "usage"
_ENTRIES = (TokenUsageEntry, ToolUsageEntry, SubAgentUsageEntry, CustomUsageEntry)


class UsageLedger(ABC):
    """`UsageStore` over the operations of one backend."""

    # -- what a backend brings

    @abstractmethod
    async def _add_entry(self, entry: UsageEntry, body: bytes) -> bool:
        """Keep an entry unless its session has one of that id."""

    @abstractmethod
    async def _of_session(
        self, session_id: str, wanted: UsageFilter, limit: int | None, offset: int
    ) -> list[UsageEntry]:
        """Entries of one session that match, in order."""

    @abstractmethod
    async def _find_entries(self, session_id: str, entry_ids: Sequence[str]) -> list[UsageEntry]:
        """Entries of one session by their ids, in any order."""

    @abstractmethod
    async def _of_all(self, wanted: UsageFilter, limit: int, offset: int) -> tuple[list[UsageEntry], int]:
        """Entries of all sessions that match, in order, and how many there are in all."""

    @abstractmethod
    async def _has_entries(self, session_id: str) -> bool:
        """Whether the session has entries."""

    @abstractmethod
    async def _drop_entries(self, session_id: str) -> bool:
        """Remove a session's entries; whether there were any."""

    # -- the protocol

    async def record_entry(self, entry: UsageEntry) -> bool:
        """See `UsageStore.record_entry`."""
        if not isinstance(entry, _ENTRIES):
            raise InvalidRequestError(f"a usage entry expected, got {type(entry).__name__}")
        return await self._add_entry(entry, to_body(entry))

    async def get_entries(
        self,
        session_id: str,
        *,
        kinds: Collection[UsageKind] | None = None,
        step_range: StepRange | None = None,
        run_id: str | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[UsageEntry]:
        """See `UsageStore.get_entries`."""
        check_page(1 if limit is None else limit, offset, MOST_ENTRIES)
        wanted = of_session(session_id, kinds, step_range, run_id)
        return await self._of_session(session_id, wanted, limit, offset)

    async def find_entries(self, session_id: str, entry_ids: Collection[str]) -> list[UsageEntry]:
        """See `UsageStore.find_entries`."""
        validate_id(session_id, "session id")
        if len(entry_ids) > MOST_ENTRIES:
            raise InvalidRequestError(f"{len(entry_ids)} ids of entries: at most {MOST_ENTRIES} allowed")
        if not entry_ids:
            return []
        return select_entries(await self._find_entries(session_id, sorted(set(entry_ids))), UsageFilter())

    async def get_rollup(self, session_id: str, *, include_sub_agents: bool = False) -> UsageRollup | None:
        """See `UsageStore.get_rollup`."""
        found: dict[str, list[UsageEntry]] = {}
        level = [validate_id(session_id, "session id")]
        while level:
            entries = await asyncio.gather(
                *(self._of_session(each, UsageFilter(), None, 0) for each in level)
            )
            found.update(zip(level, entries, strict=True))
            below = sub_session_ids(entry for each in entries for entry in each)
            level = [each for each in below if each not in found] if include_sub_agents else []
        return roll_up(found)

    async def query_usage(self, query: UsageQuery) -> Page[UsageEntry]:
        """See `UsageStore.query_usage`."""
        wanted = of_query(query)
        offset = 0 if query.cursor is None else decode_cursor(_LIST, query.cursor)[0]
        check_page(query.limit, offset, MOST_IN_PAGE)
        entries, total = await self._of_all(wanted, query.limit, offset)
        end = offset + len(entries)
        more = entries and end < total
        return Page[UsageEntry](
            items=tuple(entries),
            next_cursor=encode_cursor(_LIST, end, "") if more else None,
            has_more=bool(more),
            total=total,
        )

    async def exists(self, session_id: str) -> bool:
        """See `UsageStore.exists`."""
        return await self._has_entries(validate_id(session_id, "session id"))

    async def delete(self, session_id: str) -> bool:
        """See `UsageStore.delete`."""
        return await self._drop_entries(validate_id(session_id, "session id"))
