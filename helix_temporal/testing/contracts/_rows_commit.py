"""Writing a session: everything at once, if it is still what was read."""

import asyncio
from dataclasses import replace

import pytest

from helix_temporal.stores.protocols.session_rows import (
    RowKey,
    RowKind,
    RowsCommitted,
    SessionRows,
    WantedRows,
)
from helix_temporal.testing.builders import EPOCH
from helix_temporal.testing.contracts._rows_base import (
    SessionRowsFixtures,
    a_change,
    a_removal,
    a_row,
    a_state,
    committed,
    image,
    keys,
    staged,
    view_of,
)

ALL_BYTES = bytes(range(256)) + b'{"a": [], "n": 9007199254740993, "x": 1.0}'
IDS = (
    "plain",
    "a/b\\c",
    "..",
    "{curly}:session",
    "*?[a-z]",
    "'; DROP TABLE x; --",
    "%s %d ${x} {prefix}",
    " leading and trailing ",
    "Caf\u00e9",
    "Cafe\u0301",
    "caf\u00e9",
    "\U0001f600" * 100,
    "x" * 256,
)


class CommitContract(SessionRowsFixtures):
    """Compare the revision, then write."""

    async def test_what_was_never_stored_has_revision_0(self, store: SessionRows, session_id: str) -> None:
        """Creating a session is a commit like any other, on revision 0."""
        view = await store.view(session_id, WantedRows())
        assert (view.revision, view.max_epoch, view.state, view.rows) == (0, 0, None, ())
        assert view.thread is None

    async def test_a_commit_is_read_back_whole(self, store: SessionRows, session_id: str) -> None:
        """State and rows of one commit are there together."""
        row = a_state(session_id, user_id="u")
        puts = (a_row("c1", order=1), staged("s1", "t1"))
        assert await committed(store, a_change(session_id, state=row, puts=puts)) == 1
        view = await view_of(store, session_id, (RowKind.STAGED, "s1"))
        assert (view.revision, view.max_epoch, view.state) == (1, EPOCH, row.body)
        assert view.rows == puts[1:]
        assert (await store.read_page(session_id, RowKind.CHECKPOINT, limit=9)).rows == puts[:1]

    async def test_every_commit_counts_by_one(self, store: SessionRows, session_id: str) -> None:
        """The revision tells of every change, also of one that leaves the state."""
        first = await committed(store, a_change(session_id, state=a_state(session_id, b"one")))
        second = await committed(store, a_change(session_id, first, state=None, puts=(a_row("c1"),)))
        third = await committed(store, a_change(session_id, second, state=a_state(session_id, b"two")))
        assert [first, second, third] == [1, 2, 3]
        assert (await store.view(session_id, WantedRows())).state == b"two"

    async def test_a_commit_without_a_state_leaves_it(self, store: SessionRows, session_id: str) -> None:
        """What only stages a change does not write the state again."""
        await committed(store, a_change(session_id, state=a_state(session_id, b"state")))
        await committed(store, a_change(session_id, 1, state=None, max_epoch=EPOCH + 5))
        view = await store.view(session_id, WantedRows())
        assert (view.revision, view.state, view.max_epoch) == (2, b"state", EPOCH + 5)

    async def test_numbers_are_exact(self, store: SessionRows, session_id: str) -> None:
        """A fence is compared, so it must not be rounded."""
        await committed(store, a_change(session_id, max_epoch=2**62 + 1))
        assert (await store.view(session_id, WantedRows())).max_epoch == 2**62 + 1

    @pytest.mark.parametrize("revision", [0, 1, 3, 2**40])
    async def test_a_moved_revision_changes_nothing(
        self, store: SessionRows, session_id: str, revision: int
    ) -> None:
        """Somebody else was faster: what was decided on the old state must not be written."""
        await committed(store, a_change(session_id, puts=(staged("s1", "t1"), a_row("c1"))))
        await committed(store, a_change(session_id, 1, puts=(a_row("r1", RowKind.RUN),)))
        before = await image(store, session_id)
        late = a_change(
            session_id,
            revision,
            state=a_state(session_id, b"late"),
            max_epoch=EPOCH + 1,
            puts=(a_row("late", order=9),),
            removes=(RowKey(RowKind.CHECKPOINT, "c1"),),
            clears=((RowKind.STAGED, "s1"),),
        )
        assert await store.commit(late) is None
        assert await image(store, session_id) == before
        assert await store.commit(a_removal(session_id, revision)) is None
        assert await image(store, session_id) == before

    @pytest.mark.parametrize(
        "there",
        [
            WantedRows(keys=(RowKey(RowKind.RUN, "r1"),)),
            WantedRows(keys=(RowKey(RowKind.RUN, "new"), RowKey(RowKind.CHECKPOINT, "c1"))),
            WantedRows(groups=((RowKind.STAGED, "s1"),)),
            WantedRows(groups=((RowKind.STEP, "new"), (RowKind.STEP, "s1"))),
            WantedRows(keys=(RowKey(RowKind.RUN, "new"),), groups=((RowKind.STAGED, "s1"),)),
        ],
    )
    async def test_a_commit_that_takes_for_new_what_is_there_changes_nothing(
        self, store: SessionRows, session_id: str, there: WantedRows
    ) -> None:
        """Who did not look is refused as one who looked too early, and looks."""
        step = a_row("k", RowKind.STEP, group="s1")
        await committed(store, a_change(session_id, puts=(staged("s1", "t1"), a_row("c1"), step)))
        await committed(store, a_change(session_id, 1, puts=(a_row("r1", RowKind.RUN),)))
        before = await image(store, session_id)
        late = a_change(session_id, 2, puts=(a_row("late", order=9),), unless=there)
        assert await store.commit(late) is None
        assert await image(store, session_id) == before

    async def test_a_commit_that_takes_for_new_what_is_new_happens(
        self, store: SessionRows, session_id: str
    ) -> None:
        """Names that begin as others do, and groups of other kinds, are others; the first commit has none."""
        new = WantedRows(
            keys=(RowKey(RowKind.RUN, "r"), RowKey(RowKind.OPERATION, "r")),
            groups=((RowKind.STAGED, "r"), (RowKind.STEP, "r")),
        )
        puts = (a_row("r1", RowKind.RUN), a_row("r"), staged("r1", "r"))
        await committed(store, a_change(session_id, puts=puts, unless=new))
        await committed(store, a_change(session_id, 1, puts=(a_row("r", RowKind.RUN),), unless=new))
        assert await store.commit(a_change(session_id, 2, unless=new)) is None

    async def test_the_same_commit_again_is_refused(self, store: SessionRows, session_id: str) -> None:
        """After an unclear outcome the revision tells whether it happened."""
        change = a_change(session_id, puts=(a_row("c1"),))
        await committed(store, change)
        assert await store.commit(change) is None
        assert (await store.view(session_id, WantedRows())).revision == 1

    async def test_a_commit_on_another_birth_is_refused(self, store: SessionRows, session_id: str) -> None:
        """A store that may forget a session knows the next one of its id by it; another has none."""
        assert (await store.view(session_id)).birth == 0
        await committed(store, a_change(session_id))
        birth = (await store.view(session_id)).birth
        await committed(store, replace(a_change(session_id, 1), birth=birth))
        view = await store.view(session_id)
        assert (view.revision, view.birth) == (2, birth)
        if birth:
            assert await store.commit(replace(a_change(session_id, 2), birth=birth + 1)) is None

    async def test_of_many_on_one_revision_exactly_one_wins(
        self, store: SessionRows, session_id: str
    ) -> None:
        """Compare and write is one step: no two writers find the same revision."""
        await committed(store, a_change(session_id))
        changes = [
            a_change(session_id, 1, state=a_state(session_id, b"%d" % n), puts=(a_row(f"c{n}"),))
            for n in range(32)
        ]
        outcomes = await asyncio.gather(*map(store.commit, changes))
        won = [n for n, outcome in enumerate(outcomes) if outcome is not None]
        assert len(won) == 1
        assert outcomes[won[0]] == RowsCommitted(2)
        view = await store.view(session_id, WantedRows())
        page = await store.read_page(session_id, RowKind.CHECKPOINT, limit=100)
        assert (view.revision, view.state, keys(page.rows)) == (2, b"%d" % won[0], [f"c{won[0]}"])

    async def test_many_sessions_are_written_at_once(self, store: SessionRows, session_id: str) -> None:
        """Sessions do not wait for, or change, each other."""
        ids = [f"{session_id}-{n}" for n in range(20)]
        changes = [a_change(each, state=a_state(each, each.encode())) for each in ids]
        assert await asyncio.gather(*map(store.commit, changes)) == [RowsCommitted(1)] * 20
        views = await asyncio.gather(*(store.view(each, WantedRows()) for each in ids))
        assert [view.state for view in views] == [each.encode() for each in ids]


class WriteContract(SessionRowsFixtures):
    """What a commit makes of the rows."""

    async def test_a_put_replaces_the_row_of_its_name(self, store: SessionRows, session_id: str) -> None:
        """Staging the same call again replaces the first, also in the order."""
        puts = (staged("s1", "a", 1), staged("s1", "b", 2))
        await committed(store, a_change(session_id, puts=puts))
        again = staged("s1", "a", 3, b"again")
        await committed(store, a_change(session_id, 1, puts=(again,)))
        view = await view_of(store, session_id, (RowKind.STAGED, "s1"))
        assert view.list_rows(RowKind.STAGED, "s1") == (puts[1], again)
        page = await store.read_page(session_id, RowKind.STAGED, limit=9)
        assert (page.rows, page.total) == ((puts[1], again), 2)

    async def test_the_same_key_in_another_group_or_kind_is_another_row(
        self, store: SessionRows, session_id: str
    ) -> None:
        """Names are kind, group and key together."""
        puts = (staged("s1", "k", 0, b"1"), staged("s2", "k", 0, b"2"), a_row("k", body=b"3"))
        await committed(store, a_change(session_id, puts=puts))
        view = await store.view(session_id, WantedRows(keys=tuple(each.name for each in puts)))
        assert {each.body for each in view.rows} == {b"1", b"2", b"3"}

    async def test_removes_take_what_is_there(self, store: SessionRows, session_id: str) -> None:
        """Removing what is not there is no error: two ways lead to the same end."""
        puts = (a_row("c1", order=1), a_row("c2", order=2), staged("s1", "t1"))
        await committed(store, a_change(session_id, puts=puts))
        names = (puts[0].name, puts[2].name, RowKey(RowKind.CHECKPOINT, "absent"))
        await committed(store, a_change(session_id, 1, removes=names))
        page = await store.read_page(session_id, RowKind.CHECKPOINT, limit=9)
        assert (keys(page.rows), page.total) == (["c2"], 1)
        assert (await view_of(store, session_id, (RowKind.STAGED, "s1"))).rows == ()
        assert (await store.view(session_id, WantedRows(keys=names))).rows == ()

    async def test_clears_take_one_group_of_one_kind(self, store: SessionRows, session_id: str) -> None:
        """Committing a step drops what was staged for it, and nothing of the next one."""
        step = a_row("run", RowKind.STEP, group="s1")
        puts = (staged("s1", "a"), staged("s1", "b"), staged("s2", "a"), step)
        await committed(store, a_change(session_id, puts=puts))
        await committed(store, a_change(session_id, 1, clears=((RowKind.STAGED, "s1"),)))
        cleared = await store.view(session_id, WantedRows(keys=(puts[0].name, puts[1].name)))
        assert cleared.rows == ()
        wanted = ((RowKind.STAGED, "s1"), (RowKind.STAGED, "s2"), (RowKind.STEP, "s1"))
        view = await view_of(store, session_id, *wanted)
        assert {each.name for each in view.rows} == {puts[2].name, step.name}

    async def test_a_group_whose_name_begins_another_is_apart(
        self, store: SessionRows, session_id: str
    ) -> None:
        """A step ``s`` has nothing to do with a step ``s1``."""
        await committed(store, a_change(session_id, puts=(staged("s", "1a"), staged("s1", "a"))))
        await committed(store, a_change(session_id, 1, clears=((RowKind.STAGED, "s"),)))
        view = await view_of(store, session_id, (RowKind.STAGED, "s"), (RowKind.STAGED, "s1"))
        assert [each.name for each in view.rows] == [RowKey(RowKind.STAGED, "a", "s1")]

    async def test_clears_come_before_puts(self, store: SessionRows, session_id: str) -> None:
        """A commit can replace a whole group by another."""
        await committed(store, a_change(session_id, puts=(staged("s1", "a"), staged("s1", "b"))))
        new = (staged("s1", "b", 5, b"new"), staged("s1", "c", 4))
        await committed(store, a_change(session_id, 1, clears=((RowKind.STAGED, "s1"),), puts=new))
        view = await view_of(store, session_id, (RowKind.STAGED, "s1"))
        assert view.list_rows(RowKind.STAGED, "s1") == (new[1], new[0])

    async def test_thousands_of_rows_in_one_commit(self, store: SessionRows, session_id: str) -> None:
        """A step with many tool calls is one commit, and so is clearing it away."""
        puts = tuple(staged("s1", f"t{n:04}", n) for n in range(3000))
        await committed(store, a_change(session_id, puts=puts))
        view = await view_of(store, session_id, (RowKind.STAGED, "s1"))
        assert view.list_rows(RowKind.STAGED, "s1") == puts
        await committed(store, a_change(session_id, 1, clears=((RowKind.STAGED, "s1"),)))
        assert (await view_of(store, session_id, (RowKind.STAGED, "s1"))).rows == ()

    async def test_bytes_come_back_as_they_were(self, store: SessionRows, session_id: str) -> None:
        """The store is no judge of what the bytes mean: [] stays [] and 1.0 stays 1.0."""
        row = a_row("c1", body=ALL_BYTES)
        change = a_change(session_id, state=a_state(session_id, ALL_BYTES), puts=(row,))
        await committed(store, change)
        view = await store.view(session_id, WantedRows(keys=(row.name,)))
        assert (view.state, view.rows) == (ALL_BYTES, (row,))

    async def test_large_bytes_come_back_as_they_were(self, store: SessionRows, session_id: str) -> None:
        """A state may have grown to megabytes."""
        body = ALL_BYTES * 16_000
        row = a_row("c1", body=body)
        await committed(store, a_change(session_id, state=a_state(session_id, body), puts=(row,)))
        view = await store.view(session_id, WantedRows(keys=(row.name,)))
        assert view.state == body
        assert view.rows == (row,)

    @pytest.mark.parametrize("name", IDS)
    async def test_any_acceptable_id_names_a_row_and_a_session(self, store: SessionRows, name: str) -> None:
        """Ids come from clients: nothing in one is syntax."""
        puts = (a_row(name, order=1), staged(name, name))
        await committed(store, a_change(name, state=a_state(name, name.encode()), puts=puts))
        view = await store.view(name, WantedRows(keys=tuple(each.name for each in puts)))
        assert view.state == name.encode()
        assert set(view.rows) == set(puts)
        assert [each async for each in store.scan()] == [name]

    async def test_ids_that_look_alike_are_different_sessions(self, store: SessionRows) -> None:
        """Nothing is normalised, folded or trimmed."""
        for name in IDS:
            await committed(store, a_change(name, state=a_state(name, name.encode())))
        for name in IDS:
            assert (await store.view(name, WantedRows())).state == name.encode()
        assert sorted([each async for each in store.scan()]) == sorted(IDS)


class DeleteContract(SessionRowsFixtures):
    """The end of a session."""

    async def test_a_delete_leaves_revision_and_fence_only(self, store: SessionRows, session_id: str) -> None:
        """An old writer that comes back must neither find the session nor an empty place."""
        puts = (a_row("c1"), staged("s1", "t1"), a_row("o1", RowKind.OPERATION, order=5))
        await committed(store, a_change(session_id, puts=puts))
        assert await committed(store, a_removal(session_id, 1)) == 2
        wanted = WantedRows(keys=tuple(each.name for each in puts), groups=((RowKind.STAGED, "s1"),))
        view = await store.view(session_id, wanted)
        assert (view.revision, view.max_epoch, view.state, view.rows) == (2, EPOCH, None, ())
        assert (await store.read_page(session_id, RowKind.CHECKPOINT, limit=9)).total == 0

    async def test_a_session_made_anew_goes_on_counting(self, store: SessionRows, session_id: str) -> None:
        """A commit decided on the session before cannot hit the one after."""
        await committed(store, a_change(session_id, puts=(a_row("c1"),)))
        await committed(store, a_removal(session_id, 1))
        assert await store.commit(a_change(session_id, 0)) is None
        assert await committed(store, a_change(session_id, 2, state=a_state(session_id, b"anew"))) == 3
        view = await store.view(session_id, WantedRows(newest=(RowKind.CHECKPOINT,)))
        assert (view.state, view.rows) == (b"anew", ())

    async def test_a_delete_of_nothing_counts_too(self, store: SessionRows, session_id: str) -> None:
        """A fence can be set where a session never was."""
        assert await committed(store, a_removal(session_id, 0)) == 1
        view = await store.view(session_id, WantedRows())
        assert (view.revision, view.max_epoch, view.state) == (1, EPOCH, None)
