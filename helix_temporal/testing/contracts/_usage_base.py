"""What the parts of the usage store's contract share."""

from decimal import Decimal
from typing import Any, Final

import pytest

from helix_temporal.models.usage import (
    CustomUsageEntry,
    SubAgentUsageEntry,
    TokenCounts,
    TokenUsageEntry,
    ToolUsageEntry,
    UsageEntry,
    UsageSource,
)
from helix_temporal.stores.protocols.usage import UsageStore
from helix_temporal.testing.builders import an_id

NOON: Final = 1_800_000_000_000
"""A plausible time, in milliseconds since 1970."""

TINY: Final = Decimal("0.000000000000000001")

ODD_IDS: Final = (
    "a", "A", "a:b", "a/b", "../a", "..", "*", "{x}", "a}b", "%", "é", "e\u0301", "🔒", ".usage", "x" * 256,
    "x" * 255 + "y", "é" * 200,
)  # fmt: skip


def some_tokens(session_id: str, number: int = 0, **fields: Any) -> TokenUsageEntry:
    """A model call."""
    given: dict[str, Any] = {
        "id": f"t{number:03}",
        "timestamp": NOON + number,
        "model": "small",
        "tokens": TokenCounts(prompt=100, completion=10),
        **fields,
    }
    return TokenUsageEntry(session_id=session_id, **given)


def a_tool_call(session_id: str, number: int = 0, **fields: Any) -> ToolUsageEntry:
    """A tool call."""
    given: dict[str, Any] = {"id": f"u{number:03}", "timestamp": NOON + number, "tool_name": "look", **fields}
    return ToolUsageEntry(session_id=session_id, **given)


def a_sub_agent(session_id: str, sub_session_id: str, number: int = 0, **fields: Any) -> SubAgentUsageEntry:
    """A call of a sub-agent."""
    given: dict[str, Any] = {
        "id": f"s{number:03}",
        "timestamp": NOON + number,
        "agent_type": "researcher",
        **fields,
    }
    return SubAgentUsageEntry(session_id=session_id, sub_session_id=sub_session_id, **given)


def a_custom(session_id: str, number: int = 0, **fields: Any) -> CustomUsageEntry:
    """Something else."""
    given: dict[str, Any] = {
        "id": f"c{number:03}",
        "timestamp": NOON + number,
        "metric": "api_calls",
        "key": "tavily",
        **fields,
    }
    return CustomUsageEntry(session_id=session_id, **given)


def one_of_each(session_id: str) -> list[UsageEntry]:
    """All kinds, all fields."""
    common: dict[str, Any] = {
        "run_id": "run-1",
        "step_count": 3,
        "source": UsageSource(type="agent", name="writer"),
    }
    counts = TokenCounts(prompt=2**53 + 1, completion=2, reasoning=3, cached=4, cache_write=5, total=2**62)
    return [
        some_tokens(
            session_id,
            1,
            agent_type="writer",
            tokens=counts,
            cost_usd=Decimal("0.000000000000000001"),
            **common,
        ),
        a_tool_call(
            session_id,
            2,
            tool_call_id="call-1",
            success=False,
            duration_ms=12,
            attempts=3,
            error="é\n{}'\"",
            **common,
        ),
        a_sub_agent(session_id, f"{session_id}-below", 3, success=False, duration_ms=2**40, **common),
        a_custom(session_id, 4, amount=Decimal("-1.50"), unit="credits", **common),
    ]


async def record(usage: UsageStore, *entries: UsageEntry) -> list[bool]:
    """All of them, one after the other."""
    return [await usage.record_entry(entry) for entry in entries]


class UsageFixtures:
    """What a binding brings."""

    @pytest.fixture
    async def usage(self) -> UsageStore:
        """An empty store."""
        raise NotImplementedError("bind the contract: override the fixture `usage`")

    @pytest.fixture
    async def another(self) -> UsageStore:
        """A second instance on the same store."""
        raise NotImplementedError("bind the contract: override the fixture `another`")

    @pytest.fixture
    def session_id(self) -> str:
        """An id of this test's own."""
        return f"session-{an_id()}"
