"""Reading a session: some rows with the state, and pages of rows."""

import hashlib

import pytest

from helix_temporal.stores.protocols.session_rows import (
    RowKey,
    RowKind,
    RowPage,
    SessionRow,
    SessionRows,
    WantedRows,
)
from helix_temporal.testing.contracts._rows_base import (
    PAGED,
    SessionRowsFixtures,
    a_change,
    a_row,
    committed,
    keys,
    staged,
)

CHECKPOINT, RUN = RowKind.CHECKPOINT, RowKind.RUN


class ViewContract(SessionRowsFixtures):
    """One instant of a session."""

    async def test_wanted_keys_are_found_or_left_out(self, store: SessionRows, session_id: str) -> None:
        """What is not there is no error: the caller decides what that means."""
        puts = (a_row("c1", order=1), a_row("o1", RowKind.OPERATION, order=7), staged("s1", "t1"))
        await committed(store, a_change(session_id, puts=(*puts, a_row("c2", order=2))))
        absent = (RowKey(CHECKPOINT, "c9"), RowKey(RowKind.STAGED, "t1", "s9"))
        wanted = WantedRows(keys=(*(each.name for each in puts), *absent))
        assert set((await store.view(session_id, wanted)).rows) == set(puts)

    async def test_every_kind_is_kept(self, store: SessionRows, session_id: str) -> None:
        """Kind, group, key, order and bytes come back as they went."""
        grouped = {RowKind.STEP, RowKind.STAGED, RowKind.RECORD}
        ordered = {*PAGED, RowKind.CHECKPOINT_STATE, RowKind.STAGED, RowKind.OPERATION}
        puts = tuple(
            a_row("k", kind, group="g" if kind in grouped else "", order=3 if kind in ordered else 0)
            for kind in RowKind
        )
        await committed(store, a_change(session_id, puts=puts))
        view = await store.view(session_id, WantedRows(keys=tuple(each.name for each in puts)))
        assert set(view.rows) == set(puts)

    async def test_a_group_comes_in_order(self, store: SessionRows, session_id: str) -> None:
        """Staged changes are applied by time, equal ones by tool call."""
        puts = (staged("s1", "b", 100), staged("s1", "a", 100), staged("s1", "z", 9), staged("s2", "x", 1))
        await committed(store, a_change(session_id, puts=puts))
        view = await store.view(session_id, WantedRows(groups=((RowKind.STAGED, "s1"),)))
        assert keys(view.list_rows(RowKind.STAGED, "s1")) == ["z", "a", "b"]
        assert len(view.rows) == 3

    async def test_pages_of_staged_changes_are_of_all_steps(
        self, store: SessionRows, session_id: str
    ) -> None:
        """By time; the place before a time's first one is where all of that time begin."""
        puts = (staged("s2", "a", 7), staged("s1", "a", 7), staged("s1", "b", 7), staged("s2", "z", 2))
        await committed(store, a_change(session_id, puts=puts))
        page = await store.read_page(session_id, RowKind.STAGED, limit=10)
        assert keys(page.rows) == ["z", "a", "a", "b"]
        page = await store.read_page(session_id, RowKind.STAGED, limit=10, after=(7, ""))
        assert {(each.group, each.key) for each in page.rows} == {("s1", "a"), ("s2", "a"), ("s1", "b")}
        assert keys((await store.read_page(session_id, RowKind.STAGED, limit=2)).rows) == ["z", "a"]

    async def test_the_newest_of_a_kind_is_the_one_of_the_highest_order(
        self, store: SessionRows, session_id: str
    ) -> None:
        """The next run's turn and the last checkpoint are found without reading the others."""
        puts = (a_row("c9", order=9), a_row("c10", order=10), a_row("r1", RUN, order=2**40))
        await committed(store, a_change(session_id, puts=puts))
        view = await store.view(session_id, WantedRows(newest=(CHECKPOINT, RUN, RowKind.REF)))
        assert set(view.rows) == set(puts[1:])

    async def test_a_row_wanted_twice_comes_once(self, store: SessionRows, session_id: str) -> None:
        """Callers count what they get."""
        puts = (a_row("c1", order=1), staged("s1", "t1"))
        await committed(store, a_change(session_id, puts=puts))
        wanted = WantedRows(
            keys=tuple(each.name for each in puts),
            groups=((RowKind.STAGED, "s1"),),
            newest=(CHECKPOINT,),
        )
        assert len((await store.view(session_id, wanted)).rows) == 2

    async def test_the_view_carries_the_stores_time(self, store: SessionRows, session_id: str) -> None:
        """Whoever decides by time decides by one clock."""
        before = await store.now()
        view = await store.view(session_id, WantedRows())
        assert before <= view.now <= await store.now()

    async def test_no_thread_is_shown_where_none_is_asked_for(
        self, store: SessionRows, session_id: str
    ) -> None:
        """A state without its thread is all that most operations need."""
        await committed(store, a_change(session_id))
        assert (await store.view(session_id, WantedRows())).thread is None

    async def test_the_newest_of_a_group_is_the_one_of_the_highest_key(
        self, store: SessionRows, session_id: str
    ) -> None:
        """Of each group that is asked for, and of no other one that begins alike."""
        puts = tuple(a_record(key, group) for group, key in (("g", "a"), ("g", "B"), ("g1", "z"), ("", "y")))
        await committed(store, a_change(session_id, puts=(*puts, a_row("x", order=9))))
        names = ((RowKind.RECORD, "g"), (RowKind.RECORD, "none"), (RowKind.RECORD, "g1"))
        view = await store.view(session_id, WantedRows(newest=(CHECKPOINT,), newest_in=names))
        assert {(each.kind, each.group, each.key) for each in view.rows} == {
            (RowKind.RECORD, "g", "a"),
            (RowKind.RECORD, "g1", "z"),
            (CHECKPOINT, "", "x"),
        }
        removed = (RowKey(RowKind.RECORD, "a", "g"),)
        await committed(store, a_change(session_id, 1, removes=removed))
        view = await store.view(session_id, WantedRows(newest_in=names[:1]))
        assert keys(view.rows) == ["B"]


class RowPageContract(SessionRowsFixtures):
    """Pages of one kind."""

    @pytest.fixture
    async def paged(self, store: SessionRows, session_id: str) -> str:
        """A session with 12 checkpoints of orders 0 to 11, put in no order, and a run."""
        puts = [a_row(f"c{n}", order=n) for n in (7, 2, 11, 0, 9, 4, 1, 10, 3, 8, 5, 6)]
        await committed(store, a_change(session_id, puts=(*puts, a_row("r", RUN))))
        return session_id

    async def test_a_page_is_in_order(self, store: SessionRows, paged: str) -> None:
        """Orders are numbers: 9 comes before 10."""
        page = await store.read_page(paged, CHECKPOINT, limit=100)
        assert keys(page.rows) == [f"c{n}" for n in range(12)]
        assert page.total == 12

    async def test_pages_go_on_beyond_the_last(self, store: SessionRows, paged: str) -> None:
        """Every row is on exactly one page, forward and backward."""
        page = await store.read_page(paged, CHECKPOINT, limit=5, after=(4, "c4"))
        assert (keys(page.rows), page.total) == ([f"c{n}" for n in range(5, 10)], 12)
        page = await store.read_page(paged, CHECKPOINT, limit=5, after=(4, "c4"), descending=True)
        assert (keys(page.rows), page.total) == (["c3", "c2", "c1", "c0"], 12)
        page = await store.read_page(paged, CHECKPOINT, limit=2, descending=True)
        assert keys(page.rows) == ["c11", "c10"]

    async def test_a_page_may_go_on_from_where_nothing_is(self, store: SessionRows, paged: str) -> None:
        """The row that a cursor names may be pruned meanwhile."""
        await committed(store, a_change(paged, 1, removes=(RowKey(CHECKPOINT, "c4"),)))
        page = await store.read_page(paged, CHECKPOINT, limit=1, after=(4, "c4"))
        assert (keys(page.rows), page.total) == (["c5"], 11)
        page = await store.read_page(paged, CHECKPOINT, limit=1, after=(4, "c4"), descending=True)
        assert keys(page.rows) == ["c3"]
        assert (await store.read_page(paged, CHECKPOINT, limit=1, after=(11, "c11"))).rows == ()

    async def test_equal_orders_go_by_key(self, store: SessionRows, session_id: str) -> None:
        """The order is total, so that no page loses or repeats one."""
        names = ["B", "a", "a0", "b", "\u00e9", "\U0001f600"]
        puts = [a_row(each, RUN, order=5) for each in reversed(names)]
        await committed(store, a_change(session_id, puts=tuple(puts)))
        found: list[str] = []
        after = None
        for _ in names:
            [row] = (await store.read_page(session_id, RUN, limit=1, after=after)).rows
            found.append(row.key)
            after = (row.order, row.key)
        assert found == names

    async def test_pages_stay_complete_while_others_are_added(self, store: SessionRows, paged: str) -> None:
        """A cursor is a place in the order, not a count."""
        first = await store.read_page(paged, CHECKPOINT, limit=6, descending=True)
        await committed(store, a_change(paged, 1, puts=(a_row("c12", order=12),)))
        last = first.rows[-1]
        rest = await store.read_page(
            paged, CHECKPOINT, limit=9, after=(last.order, last.key), descending=True
        )
        assert keys(first.rows + rest.rows) == [f"c{n}" for n in range(11, -1, -1)]
        assert rest.total == 13

    async def test_a_page_of_nothing_is_empty(self, store: SessionRows, session_id: str) -> None:
        """Neither an unknown session nor one without such rows is an error."""
        assert await store.read_page(session_id, RUN, limit=9) == RowPage((), 0)
        await committed(store, a_change(session_id, puts=(a_row("c1"),)))
        assert await store.read_page(session_id, RUN, limit=9) == RowPage((), 0)

    async def test_a_page_need_not_count(self, store: SessionRows, paged: str) -> None:
        """Whoever reads all of a long list would else have it counted for each page."""
        page = await store.read_page(paged, CHECKPOINT, limit=2, count=False)
        assert keys(page.rows) == ["c0", "c1"]
        assert page.total is None

    async def test_a_page_of_staged_changes_spans_their_steps(
        self, store: SessionRows, session_id: str
    ) -> None:
        """What waits in a session is listed whatever step it waits for."""
        puts = (staged("s2", "a", 1), staged("s1", "b", 2), staged("s3", "c", 3))
        await committed(store, a_change(session_id, puts=puts))
        page = await store.read_page(session_id, RowKind.STAGED, limit=9)
        assert (page.rows, page.total) == (puts, 3)


class RowGroupContract(SessionRowsFixtures):
    """Groups of rows that have no order."""

    @pytest.fixture
    async def grouped(self, store: SessionRows, session_id: str) -> str:
        """A session with three groups of records, put in no order, and rows of other kinds."""
        puts = [a_record(f"k{n}", group) for n in (3, 1, 9, 2, 10) for group in ("g", "g/a", "h")]
        await committed(store, a_change(session_id, puts=(*puts, staged("g", "s1"), a_row("c", order=1))))
        return session_id

    async def test_a_group_is_read_by_key(self, store: SessionRows, grouped: str) -> None:
        """Keys are bytes: k10 comes before k2; other groups and kinds are not looked at."""
        rows = await store.read_group(grouped, RowKind.RECORD, "g", limit=9)
        assert keys(rows) == ["k1", "k10", "k2", "k3", "k9"]
        assert {(each.kind, each.group, each.order) for each in rows} == {(RowKind.RECORD, "g", 0)}
        rows = await store.read_group(grouped, RowKind.RECORD, "g", limit=2, descending=True)
        assert keys(rows) == ["k9", "k3"]

    async def test_a_group_goes_on_beyond_a_key(self, store: SessionRows, grouped: str) -> None:
        """Also beyond one that is not there."""
        rows = await store.read_group(grouped, RowKind.RECORD, "g/a", limit=2, after="k10")
        assert keys(rows) == ["k2", "k3"]
        rows = await store.read_group(grouped, RowKind.RECORD, "g/a", limit=9, after="k2x", descending=True)
        assert keys(rows) == ["k2", "k10", "k1"]
        assert await store.read_group(grouped, RowKind.RECORD, "g/a", limit=9, after="k9") == ()

    async def test_a_group_sorts_by_bytes(self, store: SessionRows, session_id: str) -> None:
        """Whatever the server's language is."""
        names = ["B", "a", "a0", "b", "\u00e9", "\uffee", "\U0001f600"]
        puts = tuple(a_record(each, "\u00e9") for each in reversed(names))
        await committed(store, a_change(session_id, puts=puts))
        assert keys(await store.read_group(session_id, RowKind.RECORD, "\u00e9", limit=9)) == names

    async def test_a_group_that_is_not_there_is_empty(self, store: SessionRows, grouped: str) -> None:
        """Neither an unknown session nor an unknown group is an error."""
        assert await store.read_group(grouped, RowKind.RECORD, "", limit=9) == ()
        assert await store.read_group(f"{grouped}x", RowKind.RECORD, "g", limit=9) == ()

    async def test_groups_are_listed(self, store: SessionRows, grouped: str) -> None:
        """Each once, in order, from the first wanted one on and before the last."""
        listed = await store.list_groups(grouped, RowKind.RECORD, first="", stop="~", limit=9)
        assert listed == ("g", "g/a", "h")
        listed = await store.list_groups(grouped, RowKind.RECORD, first="g\x01", stop="h", limit=9)
        assert listed == ("g/a",)
        assert await store.list_groups(grouped, RowKind.RECORD, first="", stop="~", limit=2) == ("g", "g/a")
        assert await store.list_groups(f"{grouped}x", RowKind.RECORD, first="", stop="~", limit=9) == ()

    async def test_a_cleared_group_is_no_group(self, store: SessionRows, grouped: str) -> None:
        """A list of groups is made of the rows that are there."""
        cleared = ((RowKind.RECORD, "g"),)
        await committed(store, a_change(grouped, 1, clears=cleared, puts=(a_record("k", "a"),)))
        listed = await store.list_groups(grouped, RowKind.RECORD, first="", stop="~", limit=9)
        assert listed == ("a", "g/a", "h")

    async def test_long_names_fit(self, store: SessionRows, session_id: str) -> None:
        """The longest group and key beside the longest id, of bytes that do not compress."""
        noise = hashlib.shake_256(b"noise").hexdigest(544)
        row = a_record(noise[:1024], f"{noise[-64:]}/{noise[:1024]}")
        await committed(store, a_change(session_id, puts=(row,)))
        view = await store.view(session_id, WantedRows(newest_in=((row.kind, row.group),)))
        assert view.rows == (row,)


def a_record(key: str, group: str) -> SessionRow:
    """A row without an order."""
    return a_row(key, RowKind.RECORD, group=group)
