"""Writing a session: everything at once, if it is still what was read."""

import asyncio

import pytest

from helix_temporal.stores.protocols.session_records import (
    RecordKey,
    RecordKind,
    RecordsCommitted,
    SessionRecords,
    WantedRecords,
)
from helix_temporal.testing.builders import EPOCH
from helix_temporal.testing.contracts._records_base import (
    SessionRecordsFixtures,
    a_change,
    a_record,
    a_removal,
    a_row,
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


class CommitContract(SessionRecordsFixtures):
    """Compare the revision, then write."""

    async def test_what_was_never_stored_has_revision_0(self, store: SessionRecords, session_id: str) -> None:
        """Creating a session is a commit like any other, on revision 0."""
        view = await store.view(session_id, WantedRecords())
        assert (view.revision, view.max_epoch, view.state, view.records) == (0, 0, None, ())
        assert view.thread is None

    async def test_a_commit_is_read_back_whole(self, store: SessionRecords, session_id: str) -> None:
        """State and records of one commit are there together."""
        row = a_row(session_id, user_id="u")
        puts = (a_record("c1", order=1), staged("s1", "t1"))
        assert await committed(store, a_change(session_id, row=row, puts=puts)) == 1
        view = await view_of(store, session_id, (RecordKind.STAGED, "s1"))
        assert (view.revision, view.max_epoch, view.state) == (1, EPOCH, row.body)
        assert view.records == puts[1:]
        assert (await store.read_page(session_id, RecordKind.CHECKPOINT, limit=9)).records == puts[:1]

    async def test_every_commit_counts_by_one(self, store: SessionRecords, session_id: str) -> None:
        """The revision tells of every change, also of one that leaves the state."""
        first = await committed(store, a_change(session_id, row=a_row(session_id, b"one")))
        second = await committed(store, a_change(session_id, first, row=None, puts=(a_record("c1"),)))
        third = await committed(store, a_change(session_id, second, row=a_row(session_id, b"two")))
        assert [first, second, third] == [1, 2, 3]
        assert (await store.view(session_id, WantedRecords())).state == b"two"

    async def test_a_commit_without_a_state_leaves_it(self, store: SessionRecords, session_id: str) -> None:
        """What only stages a change does not write the state again."""
        await committed(store, a_change(session_id, row=a_row(session_id, b"state")))
        await committed(store, a_change(session_id, 1, row=None, max_epoch=EPOCH + 5))
        view = await store.view(session_id, WantedRecords())
        assert (view.revision, view.state, view.max_epoch) == (2, b"state", EPOCH + 5)

    async def test_numbers_are_exact(self, store: SessionRecords, session_id: str) -> None:
        """A fence is compared, so it must not be rounded."""
        await committed(store, a_change(session_id, max_epoch=2**62 + 1))
        assert (await store.view(session_id, WantedRecords())).max_epoch == 2**62 + 1

    @pytest.mark.parametrize("revision", [0, 1, 3, 2**40])
    async def test_a_moved_revision_changes_nothing(
        self, store: SessionRecords, session_id: str, revision: int
    ) -> None:
        """Somebody else was faster: what was decided on the old state must not be written."""
        await committed(store, a_change(session_id, puts=(staged("s1", "t1"), a_record("c1"))))
        await committed(store, a_change(session_id, 1, puts=(a_record("r1", RecordKind.RUN),)))
        before = await image(store, session_id)
        late = a_change(
            session_id,
            revision,
            row=a_row(session_id, b"late"),
            max_epoch=EPOCH + 1,
            puts=(a_record("late", order=9),),
            removes=(RecordKey(RecordKind.CHECKPOINT, "c1"),),
            clears=((RecordKind.STAGED, "s1"),),
        )
        assert await store.commit(late) is None
        assert await image(store, session_id) == before
        assert await store.commit(a_removal(session_id, revision)) is None
        assert await image(store, session_id) == before

    @pytest.mark.parametrize(
        "there",
        [
            WantedRecords(keys=(RecordKey(RecordKind.RUN, "r1"),)),
            WantedRecords(keys=(RecordKey(RecordKind.RUN, "new"), RecordKey(RecordKind.CHECKPOINT, "c1"))),
            WantedRecords(groups=((RecordKind.STAGED, "s1"),)),
            WantedRecords(groups=((RecordKind.STEP, "new"), (RecordKind.STEP, "s1"))),
            WantedRecords(keys=(RecordKey(RecordKind.RUN, "new"),), groups=((RecordKind.STAGED, "s1"),)),
        ],
    )
    async def test_a_commit_that_takes_for_new_what_is_there_changes_nothing(
        self, store: SessionRecords, session_id: str, there: WantedRecords
    ) -> None:
        """Who did not look is refused as one who looked too early, and looks."""
        step = a_record("k", RecordKind.STEP, group="s1")
        await committed(store, a_change(session_id, puts=(staged("s1", "t1"), a_record("c1"), step)))
        await committed(store, a_change(session_id, 1, puts=(a_record("r1", RecordKind.RUN),)))
        before = await image(store, session_id)
        late = a_change(session_id, 2, puts=(a_record("late", order=9),), unless=there)
        assert await store.commit(late) is None
        assert await image(store, session_id) == before

    async def test_a_commit_that_takes_for_new_what_is_new_happens(
        self, store: SessionRecords, session_id: str
    ) -> None:
        """Names that begin as others do, and groups of other kinds, are others; the first commit has none."""
        new = WantedRecords(
            keys=(RecordKey(RecordKind.RUN, "r"), RecordKey(RecordKind.OPERATION, "r")),
            groups=((RecordKind.STAGED, "r"), (RecordKind.STEP, "r")),
        )
        puts = (a_record("r1", RecordKind.RUN), a_record("r"), staged("r1", "r"))
        await committed(store, a_change(session_id, puts=puts, unless=new))
        await committed(store, a_change(session_id, 1, puts=(a_record("r", RecordKind.RUN),), unless=new))
        assert await store.commit(a_change(session_id, 2, unless=new)) is None

    async def test_the_same_commit_again_is_refused(self, store: SessionRecords, session_id: str) -> None:
        """After an unclear outcome the revision tells whether it happened."""
        change = a_change(session_id, puts=(a_record("c1"),))
        await committed(store, change)
        assert await store.commit(change) is None
        assert (await store.view(session_id, WantedRecords())).revision == 1

    async def test_of_many_on_one_revision_exactly_one_wins(
        self, store: SessionRecords, session_id: str
    ) -> None:
        """Compare and write is one step: no two writers find the same revision."""
        await committed(store, a_change(session_id))
        changes = [
            a_change(session_id, 1, row=a_row(session_id, b"%d" % n), puts=(a_record(f"c{n}"),))
            for n in range(32)
        ]
        outcomes = await asyncio.gather(*map(store.commit, changes))
        won = [n for n, outcome in enumerate(outcomes) if outcome is not None]
        assert len(won) == 1
        assert outcomes[won[0]] == RecordsCommitted(2)
        view = await store.view(session_id, WantedRecords())
        page = await store.read_page(session_id, RecordKind.CHECKPOINT, limit=100)
        assert (view.revision, view.state, keys(page.records)) == (2, b"%d" % won[0], [f"c{won[0]}"])

    async def test_many_sessions_are_written_at_once(self, store: SessionRecords, session_id: str) -> None:
        """Sessions do not wait for, or change, each other."""
        ids = [f"{session_id}-{n}" for n in range(20)]
        changes = [a_change(each, row=a_row(each, each.encode())) for each in ids]
        assert await asyncio.gather(*map(store.commit, changes)) == [RecordsCommitted(1)] * 20
        views = await asyncio.gather(*(store.view(each, WantedRecords()) for each in ids))
        assert [view.state for view in views] == [each.encode() for each in ids]


class WriteContract(SessionRecordsFixtures):
    """What a commit makes of the records."""

    async def test_a_put_replaces_the_record_of_its_name(
        self, store: SessionRecords, session_id: str
    ) -> None:
        """Staging the same call again replaces the first, also in the order."""
        puts = (staged("s1", "a", 1), staged("s1", "b", 2))
        await committed(store, a_change(session_id, puts=puts))
        again = staged("s1", "a", 3, b"again")
        await committed(store, a_change(session_id, 1, puts=(again,)))
        view = await view_of(store, session_id, (RecordKind.STAGED, "s1"))
        assert view.list_records(RecordKind.STAGED, "s1") == (puts[1], again)
        page = await store.read_page(session_id, RecordKind.STAGED, limit=9)
        assert (page.records, page.total) == ((puts[1], again), 2)

    async def test_the_same_key_in_another_group_or_kind_is_another_record(
        self, store: SessionRecords, session_id: str
    ) -> None:
        """Names are kind, group and key together."""
        puts = (staged("s1", "k", 0, b"1"), staged("s2", "k", 0, b"2"), a_record("k", body=b"3"))
        await committed(store, a_change(session_id, puts=puts))
        view = await store.view(session_id, WantedRecords(keys=tuple(each.name for each in puts)))
        assert {each.body for each in view.records} == {b"1", b"2", b"3"}

    async def test_removes_take_what_is_there(self, store: SessionRecords, session_id: str) -> None:
        """Removing what is not there is no error: two ways lead to the same end."""
        puts = (a_record("c1", order=1), a_record("c2", order=2), staged("s1", "t1"))
        await committed(store, a_change(session_id, puts=puts))
        names = (puts[0].name, puts[2].name, RecordKey(RecordKind.CHECKPOINT, "absent"))
        await committed(store, a_change(session_id, 1, removes=names))
        page = await store.read_page(session_id, RecordKind.CHECKPOINT, limit=9)
        assert (keys(page.records), page.total) == (["c2"], 1)
        assert (await view_of(store, session_id, (RecordKind.STAGED, "s1"))).records == ()
        assert (await store.view(session_id, WantedRecords(keys=names))).records == ()

    async def test_clears_take_one_group_of_one_kind(self, store: SessionRecords, session_id: str) -> None:
        """Committing a step drops what was staged for it, and nothing of the next one."""
        step = a_record("run", RecordKind.STEP, group="s1")
        puts = (staged("s1", "a"), staged("s1", "b"), staged("s2", "a"), step)
        await committed(store, a_change(session_id, puts=puts))
        await committed(store, a_change(session_id, 1, clears=((RecordKind.STAGED, "s1"),)))
        cleared = await store.view(session_id, WantedRecords(keys=(puts[0].name, puts[1].name)))
        assert cleared.records == ()
        wanted = ((RecordKind.STAGED, "s1"), (RecordKind.STAGED, "s2"), (RecordKind.STEP, "s1"))
        view = await view_of(store, session_id, *wanted)
        assert {each.name for each in view.records} == {puts[2].name, step.name}

    async def test_a_group_whose_name_begins_another_is_apart(
        self, store: SessionRecords, session_id: str
    ) -> None:
        """A step ``s`` has nothing to do with a step ``s1``."""
        await committed(store, a_change(session_id, puts=(staged("s", "1a"), staged("s1", "a"))))
        await committed(store, a_change(session_id, 1, clears=((RecordKind.STAGED, "s"),)))
        view = await view_of(store, session_id, (RecordKind.STAGED, "s"), (RecordKind.STAGED, "s1"))
        assert [each.name for each in view.records] == [RecordKey(RecordKind.STAGED, "a", "s1")]

    async def test_clears_come_before_puts(self, store: SessionRecords, session_id: str) -> None:
        """A commit can replace a whole group by another."""
        await committed(store, a_change(session_id, puts=(staged("s1", "a"), staged("s1", "b"))))
        new = (staged("s1", "b", 5, b"new"), staged("s1", "c", 4))
        await committed(store, a_change(session_id, 1, clears=((RecordKind.STAGED, "s1"),), puts=new))
        view = await view_of(store, session_id, (RecordKind.STAGED, "s1"))
        assert view.list_records(RecordKind.STAGED, "s1") == (new[1], new[0])

    async def test_thousands_of_records_in_one_commit(self, store: SessionRecords, session_id: str) -> None:
        """A step with many tool calls is one commit, and so is clearing it away."""
        puts = tuple(staged("s1", f"t{n:04}", n) for n in range(3000))
        await committed(store, a_change(session_id, puts=puts))
        view = await view_of(store, session_id, (RecordKind.STAGED, "s1"))
        assert view.list_records(RecordKind.STAGED, "s1") == puts
        await committed(store, a_change(session_id, 1, clears=((RecordKind.STAGED, "s1"),)))
        assert (await view_of(store, session_id, (RecordKind.STAGED, "s1"))).records == ()

    async def test_bytes_come_back_as_they_were(self, store: SessionRecords, session_id: str) -> None:
        """The store is no judge of what the bytes mean: [] stays [] and 1.0 stays 1.0."""
        record = a_record("c1", body=ALL_BYTES)
        change = a_change(session_id, row=a_row(session_id, ALL_BYTES), puts=(record,))
        await committed(store, change)
        view = await store.view(session_id, WantedRecords(keys=(record.name,)))
        assert (view.state, view.records) == (ALL_BYTES, (record,))

    async def test_large_bytes_come_back_as_they_were(self, store: SessionRecords, session_id: str) -> None:
        """A state may have grown to megabytes."""
        body = ALL_BYTES * 16_000
        record = a_record("c1", body=body)
        await committed(store, a_change(session_id, row=a_row(session_id, body), puts=(record,)))
        view = await store.view(session_id, WantedRecords(keys=(record.name,)))
        assert view.state == body
        assert view.records == (record,)

    @pytest.mark.parametrize("name", IDS)
    async def test_any_acceptable_id_names_a_record_and_a_session(
        self, store: SessionRecords, name: str
    ) -> None:
        """Ids come from clients: nothing in one is syntax."""
        puts = (a_record(name, order=1), staged(name, name))
        await committed(store, a_change(name, row=a_row(name, name.encode()), puts=puts))
        view = await store.view(name, WantedRecords(keys=tuple(each.name for each in puts)))
        assert view.state == name.encode()
        assert set(view.records) == set(puts)
        assert [each async for each in store.scan()] == [name]

    async def test_ids_that_look_alike_are_different_sessions(self, store: SessionRecords) -> None:
        """Nothing is normalised, folded or trimmed."""
        for name in IDS:
            await committed(store, a_change(name, row=a_row(name, name.encode())))
        for name in IDS:
            assert (await store.view(name, WantedRecords())).state == name.encode()
        assert sorted([each async for each in store.scan()]) == sorted(IDS)


class DeleteContract(SessionRecordsFixtures):
    """The end of a session."""

    async def test_a_delete_leaves_revision_and_fence_only(
        self, store: SessionRecords, session_id: str
    ) -> None:
        """An old writer that comes back must neither find the session nor an empty place."""
        puts = (a_record("c1"), staged("s1", "t1"), a_record("o1", RecordKind.OPERATION, order=5))
        await committed(store, a_change(session_id, puts=puts))
        assert await committed(store, a_removal(session_id, 1)) == 2
        wanted = WantedRecords(keys=tuple(each.name for each in puts), groups=((RecordKind.STAGED, "s1"),))
        view = await store.view(session_id, wanted)
        assert (view.revision, view.max_epoch, view.state, view.records) == (2, EPOCH, None, ())
        assert (await store.read_page(session_id, RecordKind.CHECKPOINT, limit=9)).total == 0

    async def test_a_session_made_anew_goes_on_counting(self, store: SessionRecords, session_id: str) -> None:
        """A commit decided on the session before cannot hit the one after."""
        await committed(store, a_change(session_id, puts=(a_record("c1"),)))
        await committed(store, a_removal(session_id, 1))
        assert await store.commit(a_change(session_id, 0)) is None
        assert await committed(store, a_change(session_id, 2, row=a_row(session_id, b"anew"))) == 3
        view = await store.view(session_id, WantedRecords(newest=(RecordKind.CHECKPOINT,)))
        assert (view.state, view.records) == (b"anew", ())

    async def test_a_delete_of_nothing_counts_too(self, store: SessionRecords, session_id: str) -> None:
        """A fence can be set where a session never was."""
        assert await committed(store, a_removal(session_id, 0)) == 1
        view = await store.view(session_id, WantedRecords())
        assert (view.revision, view.max_epoch, view.state) == (1, EPOCH, None)
