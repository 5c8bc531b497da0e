"""Sums of a session with those below it, and queries over all sessions."""

from decimal import Decimal
from typing import Any

import pytest

from helix_temporal.errors import InvalidCursorError, InvalidRequestError
from helix_temporal.models.usage import (
    CallStats,
    TokenCounts,
    TokenSums,
    UsageQuery,
)
from helix_temporal.stores.paging import encode_cursor
from helix_temporal.stores.protocols.usage import UsageStore
from helix_temporal.testing.contracts._usage_base import (
    NOON,
    UsageFixtures,
    a_custom,
    a_sub_agent,
    a_tool_call,
    one_of_each,
    record,
    some_tokens,
)


class RollupContract(UsageFixtures):
    """Sums are those of the entries."""

    async def test_a_rollup_adds_up_tokens_and_money(self, usage: UsageStore, session_id: str) -> None:
        """Exactly, in all and by model."""
        await record(
            usage,
            some_tokens(session_id, 1, cost_usd=Decimal("0.1")),
            some_tokens(session_id, 2, cost_usd=Decimal("0.2"), tokens=TokenCounts(prompt=1, reasoning=7)),
            some_tokens(session_id, 3, model="large", tokens=TokenCounts(cached=4, cache_write=5, total=6)),
        )
        rollup = await usage.get_rollup(session_id)
        assert rollup is not None
        assert rollup.tokens.total == 117
        assert rollup.tokens_by_model == {
            "small": TokenSums(prompt=101, completion=10, reasoning=7, total=111),
            "large": TokenSums(cached=4, cache_write=5, total=6),
        }
        assert rollup.cost_usd == Decimal("0.3")
        assert (rollup.entry_count, rollup.first_at, rollup.last_at) == (3, NOON + 1, NOON + 3)

    async def test_a_rollup_counts_calls(self, usage: UsageStore, session_id: str) -> None:
        """Tools by name, sub-agents by type, with their failures and times."""
        await record(
            usage,
            a_tool_call(session_id, 1, duration_ms=5),
            a_tool_call(session_id, 2, duration_ms=7, success=False),
            a_tool_call(session_id, 3, tool_name="write"),
            a_sub_agent(session_id, "below", 4, duration_ms=9),
        )
        rollup = await usage.get_rollup(session_id)
        assert rollup is not None
        assert rollup.tool_stats.total_calls == 3
        assert rollup.tool_stats.by_tool == {
            "look": CallStats(total_calls=2, success=1, failed=1, total_duration_ms=12),
            "write": CallStats(total_calls=1, success=1),
        }
        assert rollup.sub_agent_stats.by_type["researcher"].total_duration_ms == 9
        assert rollup.cost_usd is None

    async def test_a_rollup_counts_anything_in_two_levels(self, usage: UsageStore, session_id: str) -> None:
        """``custom['api_calls']['tavily']`` of the reference."""
        await record(usage, a_custom(session_id))
        rollup = await usage.get_rollup(session_id)
        assert rollup is not None
        assert rollup.custom["api_calls"]["tavily"] == 1

    async def test_sums_of_amounts_are_exact(self, usage: UsageStore, session_id: str) -> None:
        """Ten times 0.1 is 1, whole numbers stay whole, and nothing is rounded at 28 digits."""
        tenths = [a_custom(session_id, number, key="credits", amount=Decimal("0.1")) for number in range(10)]
        wide = [Decimal(999999999999999999), Decimal("0.000000000000000001")]
        parts = [a_custom(session_id, 20 + at, key="wide", amount=each) for at, each in enumerate(wide)]
        whole = [a_custom(session_id, 30 + number, key="whole", amount=2**62) for number in range(4)]
        await record(usage, *tenths, *parts, *whole)
        rollup = await usage.get_rollup(session_id)
        assert rollup is not None
        found = rollup.custom["api_calls"]
        assert found == {
            "credits": Decimal(1),
            "wide": Decimal("999999999999999999.000000000000000001"),
            "whole": 2**64,
        }
        assert isinstance(found["whole"], int)

    async def test_a_rollup_is_of_one_session_unless_asked(self, usage: UsageStore, session_id: str) -> None:
        """What sub-agents used is theirs."""
        below = f"{session_id}-below"
        await record(usage, some_tokens(session_id), a_sub_agent(session_id, below), some_tokens(below))
        rollup = await usage.get_rollup(session_id)
        assert rollup is not None
        assert (rollup.session_ids, rollup.entry_count) == ((session_id,), 2)

    async def test_a_rollup_reaches_all_descendants_once(self, usage: UsageStore, session_id: str) -> None:
        """Three levels, a session that two lead to, one without entries, and a way back to the top."""
        top, left, right, last = (f"{session_id}-{name}" for name in ("top", "left", "right", "last"))
        await record(
            usage,
            a_sub_agent(top, left, 1),
            a_sub_agent(top, right, 2),
            a_sub_agent(left, last, 3),
            a_sub_agent(right, last, 4),
            a_sub_agent(right, f"{session_id}-empty", 5),
            a_sub_agent(last, top, 6),
            a_sub_agent(last, last, 7),
            *(some_tokens(each, 8) for each in (top, left, right, last, f"{session_id}-foreign")),
        )
        rollup = await usage.get_rollup(top, include_sub_agents=True)
        assert rollup is not None
        assert rollup.session_ids == (top, left, right, last)
        assert rollup.tokens.total == 440
        assert rollup.sub_agent_stats.total_calls == 7


class QueryContract(UsageFixtures):
    """Entries of all sessions."""

    async def test_a_query_finds_entries_of_all_sessions(
        self, usage: UsageStore, another: UsageStore, session_id: str
    ) -> None:
        """By time, then session, then id."""
        names = [f"{session_id}{name}" for name in ("b", "a", "ab", "B")]
        await record(usage, *(some_tokens(name, number) for name in names for number in (1, 0)))
        page = await another.query_usage(UsageQuery())
        found = [(entry.timestamp - NOON, entry.session_id.removeprefix(session_id)) for entry in page.items]
        assert found == [(at, name) for at in (0, 1) for name in ("B", "a", "ab", "b")]
        assert (page.total, page.has_more) == (8, False)

    async def test_a_query_chooses_by_agent(self, usage: UsageStore, session_id: str) -> None:
        """What one kind of agent used, wherever it ran; the call of a sub-agent counts as its own."""
        await record(
            usage,
            some_tokens(session_id, 1, agent_type="writer"),
            some_tokens(f"{session_id}2", 2, agent_type="writer"),
            some_tokens(f"{session_id}2", 3, agent_type="researcher"),
            a_sub_agent(session_id, f"{session_id}2", 4, agent_type="researcher"),
            some_tokens(session_id, 5),
        )
        found = [
            [entry.id for entry in (await usage.query_usage(UsageQuery(agent_type=each))).items]
            for each in ("writer", "researcher", "", "nobody")
        ]
        assert found == [["t001", "t002"], ["t003", "s004"], ["t005"], []]

    async def test_a_query_chooses_by_kind_session_and_turn(self, usage: UsageStore, session_id: str) -> None:
        """All at once."""
        await record(usage, *one_of_each(session_id), *one_of_each(f"{session_id}2"))
        await record(usage, some_tokens(session_id, 9, run_id="run-2"))
        query = UsageQuery(kinds=("tokens", "tool"), session_id=session_id, run_id="run-1")
        page = await usage.query_usage(query)
        assert [(entry.id, entry.session_id) for entry in page.items] == [
            ("t001", session_id),
            ("u002", session_id),
        ]
        assert page.total == 2

    @pytest.mark.parametrize(
        ("since", "until", "found"),
        [(2, 4, [2, 3]), (2, None, [2, 3, 4]), (None, 2, [0, 1]), (2, 2, []), (4, 9, [4]), (-9, 0, [])],
    )
    async def test_a_range_of_time_has_its_beginning_and_not_its_end(
        self, usage: UsageStore, session_id: str, since: int | None, until: int | None, found: list[int]
    ) -> None:
        """Months that follow each other count each entry once."""
        await record(usage, *(some_tokens(f"{session_id}{number}", number) for number in range(5)))
        first = None if since is None else NOON + since
        end = None if until is None else NOON + until
        page = await usage.query_usage(UsageQuery(since=first, until=end))
        assert [entry.timestamp - NOON for entry in page.items] == found

    async def test_a_later_entry_is_found_in_a_session_that_was_known_before(
        self, usage: UsageStore, session_id: str
    ) -> None:
        """And an earlier one that comes late."""
        await record(usage, *(some_tokens(session_id, number) for number in (50, 90, 10)))
        ranges = [(0, 20), (40, 60), (80, 100), (95, 100)]
        pages = [await usage.query_usage(UsageQuery(since=NOON + a, until=NOON + b)) for a, b in ranges]
        assert [page.total for page in pages] == [1, 1, 1, 0]

    async def test_pages_of_a_query_say_how_many_there_are(self, usage: UsageStore, session_id: str) -> None:
        """Following them gives each entry once, and the total stays."""
        await record(
            usage, *(some_tokens(f"{session_id}{number % 3}", number, step_count=1) for number in range(7))
        )
        pages = [await usage.query_usage(UsageQuery(limit=3))]
        pages.append(await usage.query_usage(UsageQuery(limit=3, cursor=pages[0].next_cursor)))
        pages.append(await usage.query_usage(UsageQuery(limit=3, cursor=pages[1].next_cursor)))
        assert [entry.timestamp - NOON for page in pages for entry in page.items] == [*range(7)]
        assert [(page.total, page.has_more) for page in pages] == [(7, True), (7, True), (7, False)]
        assert pages[2].next_cursor is None

    async def test_a_cursor_of_another_list_is_refused(self, usage: UsageStore) -> None:
        """Rather than read as a place in this one."""
        for cursor in ("", "nonsense", encode_cursor("sessions", 3, "")):
            with pytest.raises(InvalidCursorError):
                await usage.query_usage(UsageQuery(cursor=cursor))

    @pytest.mark.parametrize(
        "options",
        [
            {"limit": 0}, {"limit": 201}, {"limit": -1},
            {"since": 3, "until": 2}, {"since": 2**63}, {"until": -(10**30)},
        ],
        ids=str,
    )  # fmt: skip
    async def test_what_is_no_query_is_refused(self, usage: UsageStore, options: dict[str, Any]) -> None:
        """With a word that says what is allowed."""
        with pytest.raises(InvalidRequestError):
            await usage.query_usage(UsageQuery(**options))
