"""Usage: what sessions used of models, tools, sub-agents and other things, entry by entry and in sums.

Also one input and one result per activity ``helix.usage.*``.  These models are in workflow histories and in
stores: fields are added with defaults, never renamed or removed.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from helix_temporal.models.base import (
    Amount,
    Cost,
    Count,
    KnownFields,
    Label,
    Milliseconds,
    Name,
    SmallCount,
    Sum,
    Text,
    Whole,
    WireModel,
)
from helix_temporal.models.ids import Id

UsageKind = Literal["tokens", "tool", "subagent", "custom"]

Number = Annotated[int, Field(strict=True)]
"""The store checks the range."""


class UsageSource(WireModel):
    """Who used it."""

    type: Literal["agent", "tool", "subagent"]
    name: Name


class TokenCounts(WireModel):
    """Tokens of one model call; ``total`` is prompt and completion together unless it is given."""

    prompt: Count = 0
    completion: Count = 0
    reasoning: Count = 0
    cached: Count = 0
    cache_write: Count = 0
    total: Count = 0

    @model_validator(mode="before")
    @classmethod
    def _with_total(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and values.get("total") is None:
            parts = [values.get("prompt", 0), values.get("completion", 0)]
            # Anything else is refused by its own field.
            return {**values, "total": sum(parts) if {*map(type, parts)} == {int} else 0}
        return values


class _Entry(WireModel):
    """What entries of all kinds have in common; see `UsageEntry`."""

    _kind: ClassVar[str]

    id: Id
    session_id: Id
    timestamp: Milliseconds
    run_id: Id | None = None
    agent_type: Label = ""
    step_count: SmallCount = 0
    source: UsageSource | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_a_kind(cls, values: Any) -> Any:
        # What was not set is not written, and without its kind nobody can read an entry.
        return {"kind": cls._kind, **values} if isinstance(values, Mapping) else values


class TokenUsageEntry(_Entry):
    """One model call.

    Attributes:
        cost_usd: What it cost, exactly.
        duration_ms: How long it took; 0 where that is not known.
    """

    _kind = "tokens"

    kind: Literal["tokens"] = "tokens"
    model: Name
    tokens: TokenCounts = TokenCounts()
    cost_usd: Cost | None = None
    duration_ms: Count = 0


class ToolUsageEntry(_Entry):
    """One tool call.

    Attributes:
        duration_ms: How long its tool ran, of several attempts the last; 0 where that is not known.
        attempts: How often its tool was tried; 1 also where nobody counted.
        error: ``models.waiting.DENIED`` where somebody denied the call.
    """

    _kind = "tool"

    kind: Literal["tool"] = "tool"
    tool_name: Name
    tool_call_id: Label = ""
    success: Annotated[bool, Field(strict=True)] = True
    duration_ms: Count = 0
    attempts: SmallCount = 1
    error: Text = ""


class SubAgentUsageEntry(_Entry):
    """One call of a sub-agent: the edge by which sums reach its session.

    Attributes:
        agent_type: Of the agent that was called.
        duration_ms: How long it took; 0 where that is not known.
    """

    _kind = "subagent"

    kind: Literal["subagent"] = "subagent"
    sub_session_id: Id
    success: Annotated[bool, Field(strict=True)] = True
    duration_ms: Count = 0


class CustomUsageEntry(_Entry):
    """Anything else that is counted, in two levels: ``rollup.custom[metric][key]``."""

    _kind = "custom"

    kind: Literal["custom"] = "custom"
    metric: Name
    key: Name
    amount: Amount = 1
    unit: Name | None = None


UsageEntry = Annotated[
    TokenUsageEntry | ToolUsageEntry | SubAgentUsageEntry | CustomUsageEntry, Field(discriminator="kind")
]
"""One entry, told apart by ``kind``.

* ``id``: the caller's, unique within the session; recording it again changes nothing.
* ``timestamp``: milliseconds since 1970, the caller's: in a workflow, of its clock.
* ``run_id``: the turn that used it; ``step_count``: the step within it.
* ``agent_type``: of the session's agent; see `SubAgentUsageEntry` for the exception.
"""


# ---- questions --------------------------------------------------------------------------------------


class StepRange(WireModel):
    """Steps from ``min`` to ``max``, both included; None leaves an end open."""

    min: Number | None = None
    max: Number | None = None


class UsageQuery(WireModel, KnownFields):
    """Which entries of all sessions.

    Attributes:
        kinds: None means all; an empty tuple none.
        since, until: Milliseconds since 1970; ``since`` is included, ``until`` is not.
        limit: Of one page, 1 to 200.
        cursor: ``next_cursor`` of the page before.  Entries that are recorded meanwhile with an earlier time
            move those behind them: read what is over, up to a time, to see each once.
    """

    agent_type: Label | None = None
    kinds: tuple[UsageKind, ...] | None = None
    session_id: Id | None = None
    run_id: Id | None = None
    since: Number | None = None
    until: Number | None = None
    limit: Number = 50
    cursor: str | None = None


# ---- sums -------------------------------------------------------------------------------------------


class TokenSums(WireModel):
    """Tokens of many model calls."""

    prompt: Whole = 0
    completion: Whole = 0
    reasoning: Whole = 0
    cached: Whole = 0
    cache_write: Whole = 0
    total: Whole = 0


class CallStats(WireModel):
    """How often something was called, how it went, and how long all calls took together."""

    total_calls: Whole = 0
    success: Whole = 0
    failed: Whole = 0
    total_duration_ms: Whole = 0


class ToolStats(CallStats):
    """Tool calls, all and by the tool's name."""

    by_tool: dict[str, CallStats] = Field(default_factory=dict)


class SubAgentStats(CallStats):
    """Calls of sub-agents, all and by their type."""

    by_type: dict[str, CallStats] = Field(default_factory=dict)


class UsageRollup(WireModel):
    """Sums over all entries of one session, or of it and all its descendants.

    Attributes:
        session_ids: Whose entries were added up, in the order they were found; the session itself first.
        custom: By metric and key.
        cost_usd: None if no entry has one.
        first_at, last_at: Of the oldest and the newest entry, in milliseconds since 1970.
    """

    session_ids: tuple[str, ...]
    tokens: TokenSums = TokenSums()
    tokens_by_model: dict[str, TokenSums] = Field(default_factory=dict)
    tool_stats: ToolStats = ToolStats()
    sub_agent_stats: SubAgentStats = SubAgentStats()
    custom: dict[str, dict[str, Sum]] = Field(default_factory=dict)
    cost_usd: Decimal | None = None
    entry_count: int
    first_at: int
    last_at: int


# ---- activities -------------------------------------------------------------------------------------


class RecordUsageInput(WireModel):
    """One entry; its id comes from the workflow, so all attempts record it once."""

    entry: UsageEntry


class RecordUsageResult(WireModel):
    """Whether this attempt recorded it; false if it was there already."""

    recorded: bool


class UsageEntriesInput(WireModel):
    """Which entries of one session; see `UsageStore.get_entries`."""

    session_id: Id
    kinds: tuple[UsageKind, ...] | None = None
    step_range: StepRange | None = None
    run_id: Id | None = None
    limit: Number = 200
    offset: Number = 0


class UsageEntriesResult(WireModel):
    """Entries by time, then id."""

    entries: tuple[UsageEntry, ...] = ()


class UsageRollupInput(WireModel):
    """Whose usage, and whether with that of all descendants."""

    session_id: Id
    include_sub_agents: bool = False


class UsageRollupResult(WireModel):
    """The sums; none if nothing was recorded."""

    rollup: UsageRollup | None = None
