"""What every usage store promises.

::

    class TestMyUsage(UsageContract):
        @pytest.fixture
        async def usage(self): ...     # an empty store

        @pytest.fixture
        async def another(self): ...   # a second instance on the same store, as another process has one
"""

import asyncio
from decimal import Decimal
from typing import Any, Final

import pytest

from helix_temporal.errors import InvalidIdError, InvalidRequestError
from helix_temporal.models.usage import (
    CallStats,
    CustomUsageEntry,
    StepRange,
    SubAgentUsageEntry,
    TokenCounts,
    TokenSums,
    TokenUsageEntry,
    ToolUsageEntry,
    UsageEntry,
    UsageKind,
    UsageQuery,
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
            session_id, 2, tool_call_id="call-1", success=False, duration_ms=12, error="é\n{}'\"", **common
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


class RecordContract(UsageFixtures):
    """Entries are kept once and as they were."""

    async def test_entries_of_all_kinds_come_back_as_they_were(
        self, usage: UsageStore, another: UsageStore, session_id: str
    ) -> None:
        """No number is rounded, no decimal shortened, no text changed."""
        entries = one_of_each(session_id)
        assert await record(usage, *entries) == [True] * 4
        assert await another.get_entries(session_id) == entries

    async def test_an_amount_keeps_its_type(self, usage: UsageStore, session_id: str) -> None:
        """2 and 2.00 are different ways to count."""
        await record(
            usage, a_custom(session_id, 1, amount=2), a_custom(session_id, 2, amount=Decimal("2.00"))
        )
        found = await usage.get_entries(session_id)
        shown = [(type(entry.amount), str(entry.amount)) for entry in found if entry.kind == "custom"]
        assert shown == [(int, "2"), (Decimal, "2.00")]

    async def test_a_repeat_is_recorded_once(
        self, usage: UsageStore, another: UsageStore, session_id: str
    ) -> None:
        """An attempt whose answer was lost must not be paid for twice."""
        entry = some_tokens(session_id)
        assert await record(usage, entry, entry) == [True, False]
        assert await record(another, entry) == [False]
        assert await usage.get_entries(session_id) == [entry]

    async def test_the_first_entry_of_an_id_stands(self, usage: UsageStore, session_id: str) -> None:
        """Entries are never changed."""
        first = some_tokens(session_id, model="first")
        assert await record(usage, first, some_tokens(session_id, model="second")) == [True, False]
        assert await usage.get_entries(session_id) == [first]

    async def test_thirty_two_at_once_record_one_entry(
        self, usage: UsageStore, another: UsageStore, session_id: str
    ) -> None:
        """However many attempts are on their way."""
        entry = some_tokens(session_id)
        found = await asyncio.gather(*(each.record_entry(entry) for each in [usage, another] * 16))
        assert sorted(found) == [False] * 31 + [True]
        rollup = await usage.get_rollup(session_id)
        assert rollup is not None
        assert rollup.entry_count == 1

    async def test_thirty_two_entries_at_once_are_all_recorded(
        self, usage: UsageStore, another: UsageStore, session_id: str
    ) -> None:
        """Workers of one session do not lose each other's entries."""
        entries = [some_tokens(session_id, number) for number in range(32)]
        pairs = zip([usage, another] * 16, entries, strict=True)
        assert all(await asyncio.gather(*(each.record_entry(entry) for each, entry in pairs)))
        assert await usage.get_entries(session_id) == entries

    async def test_one_id_in_two_sessions_names_two_entries(self, usage: UsageStore, session_id: str) -> None:
        """Two workflows may mint the same id, and both are to be paid for."""
        entries = [some_tokens(session_id), some_tokens(f"{session_id}-other")]
        assert await record(usage, *entries) == [True, True]
        assert await usage.get_entries(session_id) == entries[:1]

    async def test_sessions_and_entries_with_odd_ids_are_kept_apart(self, usage: UsageStore) -> None:
        """Ids that differ in case or spelling only, that are long, or that look like paths and patterns."""
        entries = [some_tokens(each, id=other) for each in ODD_IDS for other in ODD_IDS]
        assert all(await asyncio.gather(*(usage.record_entry(entry) for entry in entries)))
        found = [{entry.id for entry in await usage.get_entries(each)} for each in ODD_IDS]
        assert found == [set(ODD_IDS)] * len(ODD_IDS)

    async def test_what_is_not_there_is_empty(self, usage: UsageStore, session_id: str) -> None:
        """No usage is no error."""
        assert not await usage.exists(session_id)
        assert await usage.get_entries(session_id) == []
        assert await usage.get_rollup(session_id) is None
        assert await usage.get_rollup(session_id, include_sub_agents=True) is None
        assert not await usage.delete(session_id)

    async def test_a_session_is_deleted_with_all_its_entries(
        self, usage: UsageStore, another: UsageStore, session_id: str
    ) -> None:
        """And no other session."""
        other = f"{session_id}-other"
        await record(usage, *one_of_each(session_id), some_tokens(other))
        assert await usage.exists(session_id)
        assert [await another.delete(session_id), await another.delete(session_id)] == [True, False]
        assert not await usage.exists(session_id)
        assert await usage.get_entries(session_id) == []
        assert [entry.session_id for entry in (await usage.query_usage(UsageQuery())).entries] == [other]

    async def test_a_deleted_session_records_again(self, usage: UsageStore, session_id: str) -> None:
        """Its ids are forgotten."""
        await record(usage, some_tokens(session_id))
        await usage.delete(session_id)
        assert await record(usage, some_tokens(session_id)) == [True]
        assert (await usage.query_usage(UsageQuery())).total == 1


class EntriesContract(UsageFixtures):
    """Which entries of one session, in which order."""

    async def test_entries_come_by_time_then_id(self, usage: UsageStore, session_id: str) -> None:
        """Whatever the order in which they were recorded, and however their ids are spelt."""
        times = [("b", 2), ("a", 2), ("B", 2), ("é", 2), ("🔒", 2), ("z", 1), ("0", 3)]
        await record(usage, *(some_tokens(session_id, at, id=name) for name, at in times))
        found = [entry.id for entry in await usage.get_entries(session_id)]
        assert found == ["z", "B", "a", "b", "é", "🔒", "0"]

    async def test_kinds_are_chosen(self, usage: UsageStore, session_id: str) -> None:
        """One, some, or none."""
        await record(usage, *one_of_each(session_id))
        wanted: list[list[UsageKind] | None] = [["tool"], ["custom", "tokens"], [], None]
        kinds = [[entry.kind for entry in await usage.get_entries(session_id, kinds=each)] for each in wanted]
        assert kinds == [["tool"], ["tokens", "custom"], [], ["tokens", "tool", "subagent", "custom"]]

    @pytest.mark.parametrize(
        ("first", "last", "steps"),
        [
            (2, 3, [2, 3]),
            (None, 1, [0, 1]),
            (3, None, [3, 4]),
            (2, 2, [2]),
            (9, None, []),
            (None, None, [*range(5)]),
        ],
    )
    async def test_steps_are_chosen_with_both_ends(
        self, usage: UsageStore, session_id: str, first: int | None, last: int | None, steps: list[int]
    ) -> None:
        """An end that is left open takes all."""
        await record(usage, *(some_tokens(session_id, number, step_count=number) for number in range(5)))
        found = await usage.get_entries(session_id, step_range=StepRange(min=first, max=last))
        assert [entry.step_count for entry in found] == steps

    async def test_a_turn_is_chosen(self, usage: UsageStore, session_id: str) -> None:
        """By its run id."""
        await record(
            usage, *(some_tokens(session_id, number, run_id=f"r{number % 2}") for number in range(4))
        )
        await record(usage, some_tokens(session_id, 9))
        assert [entry.id for entry in await usage.get_entries(session_id, run_id="r1")] == ["t001", "t003"]

    async def test_pages_are_stable(self, usage: UsageStore, session_id: str) -> None:
        """Following them gives each entry once."""
        await record(usage, *(some_tokens(session_id, number % 3, id=f"{number}") for number in range(7)))
        every = await usage.get_entries(session_id)
        pages = [await usage.get_entries(session_id, limit=3, offset=at) for at in (0, 3, 6, 9)]
        assert [entry for page in pages for entry in page] == every
        assert [len(page) for page in pages] == [3, 3, 1, 0]

    async def test_a_page_counts_what_matches(self, usage: UsageStore, session_id: str) -> None:
        """Filters first, then limit and offset."""
        await record(usage, *(some_tokens(session_id, number, step_count=number % 2) for number in range(9)))
        found = await usage.get_entries(session_id, step_range=StepRange(min=1), limit=2, offset=1)
        assert [entry.id for entry in found] == ["t003", "t005"]

    async def test_a_copy_is_given(self, usage: UsageStore, session_id: str) -> None:
        """A list that a caller changes is the caller's."""
        await record(usage, some_tokens(session_id))
        (await usage.get_entries(session_id)).clear()
        assert len(await usage.get_entries(session_id)) == 1

    @pytest.mark.parametrize(
        "options",
        [
            {"limit": 0}, {"limit": -1}, {"limit": 10**9}, {"limit": True}, {"limit": 1.0}, {"offset": -1},
            {"offset": 2**63}, {"offset": None}, {"kinds": ["token"]}, {"kinds": "tokens"},
            {"step_range": StepRange(min=3, max=2)}, {"step_range": StepRange(min=10**30)},
        ],
        ids=str,
    )  # fmt: skip
    async def test_what_is_no_page_is_refused(
        self, usage: UsageStore, session_id: str, options: dict[str, Any]
    ) -> None:
        """With a word that says what is allowed."""
        with pytest.raises(InvalidRequestError):
            await usage.get_entries(session_id, **options)

    @pytest.mark.parametrize("session_id", ["", "a\x00b", "x" * 257, "\ud800", 5, None], ids=ascii)
    async def test_a_bad_id_is_refused(self, usage: UsageStore, session_id: Any) -> None:
        """By every method."""
        for call in (
            usage.get_entries(session_id),
            usage.get_rollup(session_id),
            usage.exists(session_id),
            usage.delete(session_id),
        ):
            with pytest.raises(InvalidIdError):
                await call

    async def test_what_is_no_entry_is_refused(self, usage: UsageStore) -> None:
        """Before it is half written."""
        with pytest.raises(InvalidRequestError):
            await usage.record_entry({"id": "1"})  # type: ignore[arg-type]


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
        found = [
            (entry.timestamp - NOON, entry.session_id.removeprefix(session_id)) for entry in page.entries
        ]
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
            [entry.id for entry in (await usage.query_usage(UsageQuery(agent_type=each))).entries]
            for each in ("writer", "researcher", "", "nobody")
        ]
        assert found == [["t001", "t002"], ["t003", "s004"], ["t005"], []]

    async def test_a_query_chooses_by_kind_session_and_turn(self, usage: UsageStore, session_id: str) -> None:
        """All at once."""
        await record(usage, *one_of_each(session_id), *one_of_each(f"{session_id}2"))
        await record(usage, some_tokens(session_id, 9, run_id="run-2"))
        query = UsageQuery(kinds=("tokens", "tool"), session_id=session_id, run_id="run-1")
        page = await usage.query_usage(query)
        assert [(entry.id, entry.session_id) for entry in page.entries] == [
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
        assert [entry.timestamp - NOON for entry in page.entries] == found

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
        pages = [await usage.query_usage(UsageQuery(limit=3, offset=at)) for at in (0, 3, 6, 9)]
        assert [entry.timestamp - NOON for page in pages for entry in page.entries] == [*range(7)]
        assert [(page.total, page.has_more) for page in pages] == [
            (7, True),
            (7, True),
            (7, False),
            (7, False),
        ]
        assert [(page.limit, page.offset) for page in pages] == [(3, 0), (3, 3), (3, 6), (3, 9)]

    @pytest.mark.parametrize(
        "options",
        [
            {"limit": 0}, {"limit": 201}, {"limit": -1}, {"offset": -1}, {"offset": 2**63},
            {"since": 3, "until": 2}, {"since": 2**63}, {"until": -(10**30)},
        ],
        ids=str,
    )  # fmt: skip
    async def test_what_is_no_query_is_refused(self, usage: UsageStore, options: dict[str, Any]) -> None:
        """With a word that says what is allowed."""
        with pytest.raises(InvalidRequestError):
            await usage.query_usage(UsageQuery(**options))


class UsageContract(RecordContract, EntriesContract, RollupContract, QueryContract):
    """All of it."""
