"""Entries: recorded once, and read again."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from helix_temporal.errors import InvalidIdError, InvalidRequestError
from helix_temporal.models.usage import (
    StepRange,
    UsageKind,
    UsageQuery,
)
from helix_temporal.stores.protocols.usage import UsageStore
from helix_temporal.testing.contracts._usage_base import (
    ODD_IDS,
    UsageFixtures,
    a_custom,
    one_of_each,
    record,
    some_tokens,
)


class RowContract(UsageFixtures):
    """Entries are kept once and as they were."""

    async def test_entries_of_all_kinds_come_back_as_they_were(
        self, usage: UsageStore, another: UsageStore, session_id: str
    ) -> None:
        """No number is rounded, no decimal shortened, no text changed."""
        entries = one_of_each(session_id)
        assert await record(usage, *entries) == [True] * 4
        assert await another.get_entries(session_id) == entries

    async def test_entries_are_found_by_their_ids(
        self, usage: UsageStore, another: UsageStore, session_id: str
    ) -> None:
        """What one page shows of a long session is read without the rest; ids that are not there are none."""
        entries = one_of_each(session_id)
        await record(usage, *entries)
        wanted = {each.id for each in entries[1:3]}
        assert await another.find_entries(session_id, [*wanted, "nowhere", *wanted]) == entries[1:3]
        assert await another.find_entries(session_id, []) == []
        assert await another.find_entries(f"{session_id}x", wanted) == []
        with pytest.raises(InvalidRequestError):
            await another.find_entries(session_id, [str(at) for at in range(10_001)])

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
        assert [entry.session_id for entry in (await usage.query_usage(UsageQuery())).items] == [other]

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
