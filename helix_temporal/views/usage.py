"""What sessions used, in the words of the views."""

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, TypeVar

from helix_temporal.models.messages import Usage
from helix_temporal.models.usage import (
    SubAgentUsageEntry,
    TokenCounts,
    TokenSums,
    TokenUsageEntry,
    ToolUsageEntry,
    UsageEntry,
    UsageKind,
    UsageQuery,
)
from helix_temporal.models.waiting import DENIED
from helix_temporal.session.record import SessionRecord
from helix_temporal.stores.protocols.usage import UsageStore
from helix_temporal.stores.usage import MOST_ENTRIES, roll_up, sub_session_ids, sum_costs
from helix_temporal.views.access import ViewedSessions
from helix_temporal.views.models import CallStatus, ModelCall, ShownTokens, ToolSums, UsageSums

T = TypeVar("T")

_FEW: Final = 2_000
"""Entries that are added up for a page."""
_FEW_STEPS: Final = 2_000
"""Of a session whose entries are counted; there is at least one for each."""


async def read_usage(viewed: ViewedSessions, session_id: str, *, descendants: bool = False) -> UsageSums:
    """The sums of a session, or of it and its descendants that may be seen; zeros if nothing was recorded."""
    found: dict[str, list[UsageEntry]] = {}
    level = [session_id]
    while level:
        entries = [await viewed.usage.get_entries(each) for each in level]
        found.update(zip(level, entries, strict=True))
        below = sub_session_ids(entry for each in entries for entry in each) if descendants else ()
        level = [each for each in below if each not in found and await viewed.find_state(each) is not None]
    return sum_entries(found)


async def read_short_usage(
    viewed: ViewedSessions, session_id: str, record: SessionRecord | None
) -> UsageSums:
    """As `read_usage`, for a page: of a session with many entries what its thread tells of it."""
    # Redis reads all entries of a session to count them: of one with many steps nobody asks.
    if record is None or (record.steps <= _FEW_STEPS and await has_few_entries(viewed, session_id)):
        return await read_usage(viewed, session_id)
    tokens = tokens_of_message(record.usage)
    return UsageSums(tokens=tokens, model_calls=record.steps, session_ids=(session_id,), complete=False)


async def has_few_entries(viewed: ViewedSessions, session_id: str) -> bool:
    """Whether all entries of a session are added up for a page."""
    counted = await viewed.usage.query_usage(UsageQuery(session_id=session_id, limit=1))
    return (counted.total or 0) <= _FEW


async def iterate_entries(
    usage: UsageStore, session_id: str, kinds: Collection[UsageKind] | None = None
) -> AsyncIterator[UsageEntry]:
    """All entries of a session by time, in pages as large as there are."""
    for offset in itertools.count(0, MOST_ENTRIES):
        page = await usage.get_entries(session_id, kinds=kinds, limit=MOST_ENTRIES, offset=offset)
        for each in page:
            yield each
        if len(page) < MOST_ENTRIES:
            return


@dataclass(slots=True)
class RecordedUsage:
    """What usage tells of a session: entries by what they are of.

    Attributes:
        steps, tools, children: By the ids of answers and of results.
        models: By the ids of runs.
    """

    steps: dict[str, TokenUsageEntry] = field(default_factory=dict)
    tools: dict[str, ToolUsageEntry] = field(default_factory=dict)
    children: dict[str, SubAgentUsageEntry] = field(default_factory=dict)
    models: dict[str, list[TokenUsageEntry]] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Iterable[UsageEntry]) -> "RecordedUsage":
        """What these entries tell."""
        found = cls()
        for entry in entries:
            kind, _, name = entry.id.partition("/")
            if isinstance(entry, TokenUsageEntry):
                found.models.setdefault(entry.run_id or "", []).append(entry)
                if kind == "step":
                    found.steps[name] = entry
            elif isinstance(entry, ToolUsageEntry) and kind == "tool":
                found.tools[name] = entry
            elif isinstance(entry, SubAgentUsageEntry) and kind == "child":
                found.children[name] = entry
        return found

    def list_model_calls(self, run_id: str) -> tuple[ModelCall, ...]:
        """Those of a run, as far as they were recorded."""
        return tuple(_model_call_of(each) for each in self.models.get(run_id, ()))

    def count_discarded_answers(self, run_id: str) -> int:
        """Answers of a run beyond one for each of its steps: a step was tried again, and paid for again."""
        steps = [each.step_count for each in self.models.get(run_id, ()) if each.id.startswith("step/")]
        return len(steps) - len(set(steps))


def sum_entries(entries: Mapping[str, Sequence[UsageEntry]]) -> UsageSums:
    """The sums over the entries of sessions."""
    found = roll_up(entries)
    if found is None:
        return UsageSums(session_ids=tuple(entries))
    tools = found.tool_stats
    every = [each for some in entries.values() for each in some]
    models = [each for each in every if isinstance(each, TokenUsageEntry)]
    denied = Counter(
        each.tool_name for each in every if isinstance(each, ToolUsageEntry) and was_denied(each)
    )
    by_tool = {
        name: ToolSums(
            calls=each.total_calls, failed=each.failed - denied[name], duration_ms=each.total_duration_ms
        )
        for name, each in tools.by_tool.items()
    }
    return UsageSums(
        tokens=_tokens_of(found.tokens),
        model_calls=len(models),
        tool_calls=tools.total_calls,
        failed_tool_calls=tools.failed - denied.total(),
        sub_agent_calls=found.sub_agent_stats.total_calls,
        failed_sub_agent_calls=found.sub_agent_stats.failed,
        cost_usd=found.cost_usd,
        duration_ms=sum(each.duration_ms for each in models) + tools.total_duration_ms,
        by_model={name: _tokens_of(each) for name, each in found.tokens_by_model.items()},
        by_tool=by_tool,
        custom={
            metric: {key: Decimal(amount) for key, amount in keys.items()}
            for metric, keys in found.custom.items()
        },
        session_ids=tuple(entries),
        first_at=found.first_at,
        last_at=found.last_at,
    )


def was_denied(entry: ToolUsageEntry) -> bool:
    """Whether somebody denied a call: then it had no success, but nothing failed."""
    return not entry.success and entry.error == DENIED


def duration_of(entry: TokenUsageEntry | ToolUsageEntry | SubAgentUsageEntry) -> int | None:
    """How long it took, in milliseconds; None where nobody has measured it, which an entry says by 0."""
    return entry.duration_ms or None


def status_of_entry(entry: ToolUsageEntry | SubAgentUsageEntry) -> CallStatus:
    """How a call ended, as usage tells it."""
    if entry.success:
        return "done"
    return "denied" if isinstance(entry, ToolUsageEntry) and was_denied(entry) else "failed"


def _tokens_of(sums: TokenSums | TokenCounts) -> ShownTokens:
    return ShownTokens(
        input=sums.prompt,
        output=sums.completion,
        cached=sums.cached,
        cache_written=sums.cache_write,
        reasoning=sums.reasoning,
    )


def tokens_of_message(used: Usage) -> ShownTokens:
    """What the model call that gave a message used."""
    return ShownTokens(
        input=used.input_tokens,
        output=used.output_tokens,
        cached=used.cached_read_tokens,
        cache_written=used.cached_write_tokens,
        reasoning=used.reasoning_tokens,
    )


def _model_call_of(entry: TokenUsageEntry) -> ModelCall:
    return ModelCall(
        model=entry.model,
        step=entry.step_count,
        at=entry.timestamp,
        tokens=_tokens_of(entry.tokens),
        cost_usd=entry.cost_usd,
        duration_ms=duration_of(entry),
    )


def add_tokens(one: ShownTokens, other: ShownTokens) -> ShownTokens:
    """The sums of both."""
    return ShownTokens(
        **{name: getattr(one, name) + getattr(other, name) for name in ShownTokens.model_fields}
    )


def add_usage(one: UsageSums, other: UsageSums) -> UsageSums:
    """The sums of both, which are of different sessions."""
    counts = (
        "model_calls",
        "tool_calls",
        "failed_tool_calls",
        "sub_agent_calls",
        "failed_sub_agent_calls",
        "duration_ms",
    )
    return UsageSums(
        **{name: getattr(one, name) + getattr(other, name) for name in counts},
        tokens=add_tokens(one.tokens, other.tokens),
        cost_usd=sum_costs((one.cost_usd, other.cost_usd)),
        by_model=_add_by_name(one.by_model, other.by_model, add_tokens),
        by_tool=_add_by_name(one.by_tool, other.by_tool, _add_tools),
        custom=_add_by_name(
            one.custom, other.custom, lambda ours, theirs: _add_by_name(ours, theirs, Decimal.__add__)
        ),
        session_ids=tuple(dict.fromkeys((*one.session_ids, *other.session_ids))),
        first_at=min((each for each in (one.first_at, other.first_at) if each is not None), default=None),
        last_at=max((each for each in (one.last_at, other.last_at) if each is not None), default=None),
        complete=one.complete and other.complete,
    )


def _add_by_name(one: Mapping[str, T], other: Mapping[str, T], add: Callable[[T, T], T]) -> dict[str, T]:
    return {
        **one,
        **{name: add(one[name], value) if name in one else value for name, value in other.items()},
    }


def _add_tools(one: ToolSums, other: ToolSums) -> ToolSums:
    return ToolSums(
        calls=one.calls + other.calls,
        failed=one.failed + other.failed,
        duration_ms=one.duration_ms + other.duration_ms,
    )
