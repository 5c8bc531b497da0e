"""Reading a session: some records with the state, and pages of records."""

import pytest

from helix_temporal.stores.protocols.session_records import (
    RecordKey,
    RecordKind,
    RecordPage,
    SessionRecords,
    WantedRecords,
)
from helix_temporal.testing.contracts._records_base import (
    PAGED,
    SessionRecordsFixtures,
    a_change,
    a_record,
    committed,
    keys,
    staged,
)

CHECKPOINT, RUN = RecordKind.CHECKPOINT, RecordKind.RUN


class ViewContract(SessionRecordsFixtures):
    """One instant of a session."""

    async def test_wanted_keys_are_found_or_left_out(self, store: SessionRecords, session_id: str) -> None:
        """What is not there is no error: the caller decides what that means."""
        puts = (a_record("c1", order=1), a_record("o1", RecordKind.OPERATION, order=7), staged("s1", "t1"))
        await committed(store, a_change(session_id, puts=(*puts, a_record("c2", order=2))))
        absent = (RecordKey(CHECKPOINT, "c9"), RecordKey(RecordKind.STAGED, "t1", "s9"))
        wanted = WantedRecords(keys=(*(each.name for each in puts), *absent))
        assert set((await store.view(session_id, wanted)).records) == set(puts)

    async def test_every_kind_is_kept(self, store: SessionRecords, session_id: str) -> None:
        """Kind, group, key, order and bytes come back as they went."""
        grouped = {RecordKind.STEP, RecordKind.STAGED}
        ordered = {*PAGED, RecordKind.CHECKPOINT_STATE, RecordKind.STAGED, RecordKind.OPERATION}
        puts = tuple(
            a_record("k", kind, group="g" if kind in grouped else "", order=3 if kind in ordered else 0)
            for kind in RecordKind
        )
        await committed(store, a_change(session_id, puts=puts))
        view = await store.view(session_id, WantedRecords(keys=tuple(each.name for each in puts)))
        assert set(view.records) == set(puts)

    async def test_a_group_comes_in_order(self, store: SessionRecords, session_id: str) -> None:
        """Staged changes are applied by time, equal ones by tool call."""
        puts = (staged("s1", "b", 100), staged("s1", "a", 100), staged("s1", "z", 9), staged("s2", "x", 1))
        await committed(store, a_change(session_id, puts=puts))
        view = await store.view(session_id, WantedRecords(groups=((RecordKind.STAGED, "s1"),)))
        assert keys(view.list_records(RecordKind.STAGED, "s1")) == ["z", "a", "b"]
        assert len(view.records) == 3

    async def test_pages_of_staged_changes_are_of_all_steps(
        self, store: SessionRecords, session_id: str
    ) -> None:
        """By time; the place before a time's first one is where all of that time begin."""
        puts = (staged("s2", "a", 7), staged("s1", "a", 7), staged("s1", "b", 7), staged("s2", "z", 2))
        await committed(store, a_change(session_id, puts=puts))
        page = await store.read_page(session_id, RecordKind.STAGED, limit=10)
        assert keys(page.records) == ["z", "a", "a", "b"]
        page = await store.read_page(session_id, RecordKind.STAGED, limit=10, after=(7, ""))
        assert {(each.group, each.key) for each in page.records} == {("s1", "a"), ("s2", "a"), ("s1", "b")}
        assert keys((await store.read_page(session_id, RecordKind.STAGED, limit=2)).records) == ["z", "a"]

    async def test_the_newest_of_a_kind_is_the_one_of_the_highest_order(
        self, store: SessionRecords, session_id: str
    ) -> None:
        """The next run's turn and the last checkpoint are found without reading the others."""
        puts = (a_record("c9", order=9), a_record("c10", order=10), a_record("r1", RUN, order=2**40))
        await committed(store, a_change(session_id, puts=puts))
        view = await store.view(session_id, WantedRecords(newest=(CHECKPOINT, RUN, RecordKind.REF)))
        assert set(view.records) == set(puts[1:])

    async def test_a_record_wanted_twice_comes_once(self, store: SessionRecords, session_id: str) -> None:
        """Callers count what they get."""
        puts = (a_record("c1", order=1), staged("s1", "t1"))
        await committed(store, a_change(session_id, puts=puts))
        wanted = WantedRecords(
            keys=tuple(each.name for each in puts),
            groups=((RecordKind.STAGED, "s1"),),
            newest=(CHECKPOINT,),
        )
        assert len((await store.view(session_id, wanted)).records) == 2

    async def test_the_view_carries_the_stores_time(self, store: SessionRecords, session_id: str) -> None:
        """Whoever decides by time decides by one clock."""
        before = await store.now()
        view = await store.view(session_id, WantedRecords())
        assert before <= view.now <= await store.now()

    async def test_no_thread_is_shown_where_none_is_asked_for(
        self, store: SessionRecords, session_id: str
    ) -> None:
        """A state without its thread is all that most operations need."""
        await committed(store, a_change(session_id))
        assert (await store.view(session_id, WantedRecords())).thread is None


class RecordPageContract(SessionRecordsFixtures):
    """Pages of one kind."""

    @pytest.fixture
    async def paged(self, store: SessionRecords, session_id: str) -> str:
        """A session with 12 checkpoints of orders 0 to 11, put in no order, and a run."""
        puts = [a_record(f"c{n}", order=n) for n in (7, 2, 11, 0, 9, 4, 1, 10, 3, 8, 5, 6)]
        await committed(store, a_change(session_id, puts=(*puts, a_record("r", RUN))))
        return session_id

    async def test_a_page_is_in_order(self, store: SessionRecords, paged: str) -> None:
        """Orders are numbers: 9 comes before 10."""
        page = await store.read_page(paged, CHECKPOINT, limit=100)
        assert keys(page.records) == [f"c{n}" for n in range(12)]
        assert page.total == 12

    async def test_pages_go_on_beyond_the_last(self, store: SessionRecords, paged: str) -> None:
        """Every record is on exactly one page, forward and backward."""
        page = await store.read_page(paged, CHECKPOINT, limit=5, after=(4, "c4"))
        assert (keys(page.records), page.total) == ([f"c{n}" for n in range(5, 10)], 12)
        page = await store.read_page(paged, CHECKPOINT, limit=5, after=(4, "c4"), descending=True)
        assert (keys(page.records), page.total) == (["c3", "c2", "c1", "c0"], 12)
        page = await store.read_page(paged, CHECKPOINT, limit=2, descending=True)
        assert keys(page.records) == ["c11", "c10"]

    async def test_a_page_may_go_on_from_where_nothing_is(self, store: SessionRecords, paged: str) -> None:
        """The record that a cursor names may be pruned meanwhile."""
        await committed(store, a_change(paged, 1, removes=(RecordKey(CHECKPOINT, "c4"),)))
        page = await store.read_page(paged, CHECKPOINT, limit=1, after=(4, "c4"))
        assert (keys(page.records), page.total) == (["c5"], 11)
        page = await store.read_page(paged, CHECKPOINT, limit=1, after=(4, "c4"), descending=True)
        assert keys(page.records) == ["c3"]
        assert (await store.read_page(paged, CHECKPOINT, limit=1, after=(11, "c11"))).records == ()

    async def test_equal_orders_go_by_key(self, store: SessionRecords, session_id: str) -> None:
        """The order is total, so that no page loses or repeats one."""
        names = ["B", "a", "a0", "b", "\u00e9", "\U0001f600"]
        puts = [a_record(each, RUN, order=5) for each in reversed(names)]
        await committed(store, a_change(session_id, puts=tuple(puts)))
        found: list[str] = []
        after = None
        for _ in names:
            [record] = (await store.read_page(session_id, RUN, limit=1, after=after)).records
            found.append(record.key)
            after = (record.order, record.key)
        assert found == names

    async def test_pages_stay_complete_while_others_are_added(
        self, store: SessionRecords, paged: str
    ) -> None:
        """A cursor is a place in the order, not a count."""
        first = await store.read_page(paged, CHECKPOINT, limit=6, descending=True)
        await committed(store, a_change(paged, 1, puts=(a_record("c12", order=12),)))
        last = first.records[-1]
        rest = await store.read_page(
            paged, CHECKPOINT, limit=9, after=(last.order, last.key), descending=True
        )
        assert keys(first.records + rest.records) == [f"c{n}" for n in range(11, -1, -1)]
        assert rest.total == 13

    async def test_a_page_of_nothing_is_empty(self, store: SessionRecords, session_id: str) -> None:
        """Neither an unknown session nor one without such records is an error."""
        assert await store.read_page(session_id, RUN, limit=9) == RecordPage((), 0)
        await committed(store, a_change(session_id, puts=(a_record("c1"),)))
        assert await store.read_page(session_id, RUN, limit=9) == RecordPage((), 0)

    async def test_a_page_of_staged_changes_spans_their_steps(
        self, store: SessionRecords, session_id: str
    ) -> None:
        """What waits in a session is listed whatever step it waits for."""
        puts = (staged("s2", "a", 1), staged("s1", "b", 2), staged("s3", "c", 3))
        await committed(store, a_change(session_id, puts=puts))
        page = await store.read_page(session_id, RecordKind.STAGED, limit=9)
        assert (page.records, page.total) == (puts, 3)
