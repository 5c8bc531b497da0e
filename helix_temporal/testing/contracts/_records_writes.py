"""Writing records: all or nothing, by compare, under a fence, beside others and after a delete."""

import asyncio

import pytest

from helix_temporal.errors import (
    FencedError,
    IdempotencyConflictError,
    SessionExistsError,
    SessionNotFoundError,
    StaleStateError,
)
from helix_temporal.models.states import CreateSession
from helix_temporal.models.store_calls import SessionQuery
from helix_temporal.stores.protocols.records import (
    Record,
    RecordChange,
    RecordName,
    Records,
    WantedRecords,
)
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.testing.contracts._records_base import (
    NEW,
    RecordsFixtures,
    a_record,
    found,
    keys_in,
    putting,
    written,
)


class WriteContract(RecordsFixtures):
    """A change is one unit."""

    async def test_a_change_clears_removes_and_puts(self, records: Records, session_id: str) -> None:
        """In this order, so that a group can be replaced in one write."""
        await written(records, session_id, *(a_record(key, group) for key in "abc" for group in ("g", "h")))
        change = RecordChange(
            puts=(a_record("a", "g", body=b"new"), a_record("d", "g")),
            removes=(RecordName("k", "b", "h"), RecordName("k", "none", "h")),
            clears=(("k", "g"), ("k", "none")),
        )
        await records.write(session_id, change)
        assert await keys_in(records, session_id, group="g") == ["a", "d"]
        assert await keys_in(records, session_id, group="h") == ["a", "c"]
        assert await found(records, session_id, RecordName("k", "a", "g")) == [b"new"]

    async def test_a_record_is_replaced(self, records: Records, session_id: str) -> None:
        """By one of another length; the last of a name in a change counts."""
        await written(records, session_id, a_record("a", body=b"x" * 1000))
        await written(records, session_id, a_record("a", body=b"1"), a_record("a", body=b"2"))
        assert await found(records, session_id, RecordName("k", "a")) == [b"2"]

    async def test_the_revision_goes_up_by_one(self, records: Records, session_id: str) -> None:
        """A writer knows where the session stands without reading it again."""
        first = await written(records, session_id, a_record("a"))
        second = await records.write(session_id, putting(a_record("b")), revision=first)
        assert second == first + 1
        assert (await records.read(session_id)).revision == second

    async def test_many_records_are_one_change(self, records: Records, session_id: str) -> None:
        """More than one call of a server takes."""
        await written(records, session_id, *(a_record(f"{n:05}", "g") for n in range(3_000)))
        assert len(await keys_in(records, session_id, group="g")) == 3_000
        await records.write(session_id, RecordChange(clears=(("k", "g"),)))
        assert await keys_in(records, session_id, group="g") == []

    async def test_writers_beside_each_other_lose_nothing(
        self, records: Records, another: Records, session_id: str
    ) -> None:
        """Each tries again inside until its change is in."""
        await written(records, session_id, a_record("0"))
        writers = [
            (records, another)[n % 2].write(session_id, putting(a_record(f"w{n:02}"))) for n in range(24)
        ]
        revisions = await asyncio.gather(*writers)
        assert await keys_in(records, session_id) == ["0", *(f"w{n:02}" for n in range(24))]
        assert len(set(revisions)) == 24

    async def test_a_repeat_changes_nothing(self, records: Records, session_id: str) -> None:
        """An unclear outcome is repeated, whether it had happened or not."""
        change = RecordChange(puts=(a_record("a"),), removes=(RecordName("k", "b"),), clears=(("k", "g"),))
        await records.write(session_id, change, create=NEW)
        await records.write(session_id, change, create=NEW)
        assert await keys_in(records, session_id) == ["a"]

    async def test_an_operation_is_carried_out_once(self, records: Records, session_id: str) -> None:
        """A repeat gets the first answer, though it compares with a revision that has moved since."""
        base = await written(records, session_id, a_record("a"))
        change = putting(a_record("b"))
        first = await records.write(session_id, change, revision=base, operation_id="op")
        await records.write(session_id, RecordChange(removes=(RecordName("k", "b"),)))
        assert await records.write(session_id, change, revision=base, operation_id="op") == first
        assert await keys_in(records, session_id) == ["a"]
        with pytest.raises(IdempotencyConflictError):
            await records.write(session_id, putting(a_record("c")), revision=base, operation_id="op")

    async def test_an_empty_change_is_none(self, records: Records, session_id: str) -> None:
        """It only tells where the session stands."""
        revision = await written(records, session_id, a_record("a"))
        assert await records.write(session_id, RecordChange()) == revision


class GuardContract(RecordsFixtures):
    """Who may write."""

    async def test_only_the_revision_that_was_read_is_written(
        self, records: Records, another: Records, session_id: str
    ) -> None:
        """Of two that decide by the same reading one is refused, and has changed nothing."""
        revision = await written(records, session_id, a_record("n", body=b"1"))
        await another.write(session_id, putting(a_record("n", body=b"2")), revision=revision)
        with pytest.raises(StaleStateError):
            await records.write(session_id, putting(a_record("n", body=b"3")), revision=revision)
        assert await found(records, session_id, RecordName("k", "n")) == [b"2"]

    async def test_of_many_with_one_revision_one_writes(
        self, records: Records, another: Records, session_id: str
    ) -> None:
        """Whichever process they are in."""
        revision = await written(records, session_id, a_record("n"))
        writers = [
            (records, another)[n % 2].write(
                session_id, putting(a_record("n", body=b"%d" % n)), revision=revision
            )
            for n in range(8)
        ]
        outcomes = await asyncio.gather(*writers, return_exceptions=True)
        assert [type(each) for each in outcomes].count(int) == 1
        assert [type(each) for each in outcomes].count(StaleStateError) == 7

    async def test_a_new_session_is_revision_0(
        self, records: Records, another: Records, session_id: str
    ) -> None:
        """Of two that begin the same one is refused."""
        await records.write(session_id, putting(a_record("a")), revision=0, create=NEW)
        with pytest.raises(StaleStateError):
            await another.write(session_id, putting(a_record("b")), revision=0, create=NEW)
        assert await keys_in(records, session_id) == ["a"]

    async def test_a_writer_that_was_replaced_is_refused(
        self, records: Records, another: Records, session_id: str
    ) -> None:
        """By its epoch, and for good; who names none is not fenced."""
        mine = await records.take_over(session_id, create=NEW)
        await records.write(session_id, putting(a_record("a")), epoch=mine)
        theirs = await another.take_over(session_id)
        assert theirs > mine
        with pytest.raises(FencedError):
            await records.write(session_id, putting(a_record("b")), epoch=mine)
        await another.write(session_id, putting(a_record("c")), epoch=theirs)
        await records.write(session_id, putting(a_record("d")))
        assert await keys_in(records, session_id) == ["a", "c", "d"]
        assert (await records.read(session_id)).epoch == theirs

    async def test_a_higher_epoch_becomes_the_sessions(
        self, records: Records, another: Records, session_id: str
    ) -> None:
        """From the write on, also one of an empty change."""
        await written(records, session_id, a_record("a"))
        await records.write(session_id, putting(a_record("b")), epoch=5)
        await records.write(session_id, RecordChange(), epoch=7)
        with pytest.raises(FencedError):
            await another.write(session_id, putting(a_record("c")), epoch=6)
        assert (await another.read(session_id)).epoch == 7

    async def test_no_two_take_over_alike(self, records: Records, another: Records, session_id: str) -> None:
        """Those who do it at the same time get different epochs, and the last one has it."""
        await written(records, session_id, a_record("a"))
        epochs = await asyncio.gather(*((records, another)[n % 2].take_over(session_id) for n in range(10)))
        assert len(set(epochs)) == 10
        assert (await records.read(session_id)).epoch == max(epochs)


class RecordedSessionContract(RecordsFixtures):
    """The session beside the records."""

    async def test_there_is_no_session_by_itself(self, records: Records, session_id: str) -> None:
        """A typing error in an id makes none."""
        with pytest.raises(SessionNotFoundError):
            await records.write(session_id, putting(a_record("a")))
        with pytest.raises(SessionNotFoundError):
            await records.take_over(session_id)
        assert not (await records.read(session_id)).exists

    async def test_a_session_of_records_is_listed(
        self, records: Records, sessions: SessionStore, session_id: str
    ) -> None:
        """By what it was created with, and like any other."""
        create = CreateSession(agent_type="graph", user_id="u1", metadata={"own": session_id})
        await records.write(session_id, putting(a_record("a")), create=create)
        page = await sessions.list_sessions(SessionQuery(metadata={"own": session_id}))
        assert [(each.session_id, each.agent_type) for each in page.sessions] == [(session_id, "graph")]
        with pytest.raises(SessionExistsError):
            await sessions.create_session(session_id)

    async def test_a_session_that_is_there_is_not_created_again(
        self, records: Records, sessions: SessionStore, session_id: str
    ) -> None:
        """``create`` counts for a new one only; the state stays as it is."""
        before = await sessions.create_session(session_id, CreateSession(title="mine"))
        await written(records, session_id, a_record("a"))
        assert await sessions.load_state(session_id) == before

    async def test_state_and_records_change_beside_each_other(
        self, records: Records, sessions: SessionStore, session_id: str
    ) -> None:
        """Neither takes anything of the other away."""
        await written(records, session_id, a_record("a"))
        await asyncio.gather(
            *(records.write(session_id, putting(a_record(f"r{n}"))) for n in range(8)),
            *(sessions.increment_step_count(session_id) for _ in range(8)),
        )
        state = await sessions.load_state(session_id)
        assert state is not None
        assert state.step_count == 8
        assert len(await keys_in(records, session_id)) == 9

    async def test_a_deleted_session_has_no_records(
        self, records: Records, sessions: SessionStore, session_id: str
    ) -> None:
        """All go with it, whatever their kind."""
        names = (RecordName("k", "a"), RecordName("other", "b", "g"))
        await written(records, session_id, *(Record(each.kind, each.key, b"x", each.group) for each in names))
        assert await sessions.delete_session(session_id)
        view = await records.read(session_id, WantedRecords(names, (("k", ""),), (("other", "g"),)))
        assert (view.exists, view.records) == (False, ())
        assert await records.read_page(session_id, "k", limit=9) == ()
        assert await records.list_groups(session_id, "other") == ()

    async def test_a_late_writer_does_not_bring_a_session_back(
        self, records: Records, another: Records, sessions: SessionStore, session_id: str
    ) -> None:
        """Not by what it knows of it, and not by saying what a new one begins with."""
        revision = await written(records, session_id, a_record("a"))
        await sessions.delete_session(session_id)
        for late in (records, another):
            with pytest.raises(SessionNotFoundError):
                await late.write(session_id, putting(a_record("b")), revision=revision)
            with pytest.raises(SessionNotFoundError):
                await late.write(session_id, putting(a_record("b")), create=NEW)
            with pytest.raises(SessionNotFoundError):
                await late.take_over(session_id, create=NEW)
        assert not (await records.read(session_id)).exists

    async def test_a_deleted_session_is_begun_anew_where_that_is_asked(
        self, records: Records, sessions: SessionStore, session_id: str
    ) -> None:
        """Without anything of the first one, but with a higher revision and its fence."""
        epoch = await records.take_over(session_id, create=NEW)
        revision = await records.write(session_id, putting(a_record("a")), epoch=epoch)
        await sessions.delete_session(session_id)
        again = await records.write(session_id, putting(a_record("b")), create=NEW, revive=True)
        assert again > revision
        assert await keys_in(records, session_id) == ["b"]
        with pytest.raises(FencedError):
            await records.write(session_id, putting(a_record("c")), epoch=epoch - 1)
