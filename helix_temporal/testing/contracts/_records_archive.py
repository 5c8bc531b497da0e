"""Old records in the archive: read as before, freed with the last of them, and no crash loses one."""

import asyncio
from typing import Any, NamedTuple

import pytest

from helix_temporal.errors import SessionNotFoundError, StoreCorruptError, StoreUnavailableError
from helix_temporal.stores.protocols.records import Record, RecordChange, RecordName, WantedRecords
from helix_temporal.stores.protocols.session_rows import RowKind, RowsCommitted, SessionCommit, SessionRows
from helix_temporal.stores.record_packs import RecordPacks, encode_pack, read_pack_rows
from helix_temporal.stores.records import RecordUpkeep, RowRecords
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.testing.builders import an_id
from helix_temporal.testing.contracts._records_base import NEW, putting
from helix_temporal.testing.faults import BlobFault, FaultyBlobs

RECORD = RowKind.RECORD


class FaultyRows:
    """Rows around other ones; one commit fails as unavailable, before or after it happens."""

    def __init__(self, inner: SessionRows) -> None:
        self._inner = inner
        self.commits, self.armed, self.happens = 0, 0, False

    def arm(self, commit: int, *, happens: bool) -> None:
        """Break off the commit of this number from now on."""
        self.commits, self.armed, self.happens = 0, commit, happens

    def __getattr__(self, name: str) -> Any:
        """The others pass."""
        return getattr(self._inner, name)

    async def commit(self, change: SessionCommit) -> RowsCommitted | None:
        """See `SessionRows.commit`."""
        self.commits += 1
        if self.commits != self.armed:
            return await self._inner.commit(change)
        if self.happens:
            await self._inner.commit(change)
        raise StoreUnavailableError(f"commit {self.commits} is broken off")


class OpenArchive(NamedTuple):
    """Records with an archive, and what they are made of."""

    rows: FaultyRows
    blobs: FaultyBlobs
    sessions: RowSessions
    records: RowRecords

    @classmethod
    def over(cls, rows: SessionRows, blobs: FaultyBlobs) -> "OpenArchive":
        """As `Backends` makes it."""
        faulty: Any = FaultyRows(rows)
        sessions = RowSessions(faulty, recalls=rows.durable, packs=RecordPacks(blobs, prefix="p"))
        return cls(faulty, blobs, sessions, RowRecords(sessions))

    def opened_again(self) -> "OpenArchive":
        """As another process has it: nothing is remembered."""
        rows: Any = self.rows
        return OpenArchive.over(rows, self.blobs)

    def make_upkeep(self, abandoned_after: int = 0) -> RecordUpkeep:
        """An upkeep that takes everything for old."""
        return RecordUpkeep(self.sessions, after=0, abandoned_after=abandoned_after)

    async def list_objects(self) -> list[str]:
        """The keys of all packs."""
        return sorted([info.key async for info in self.blobs.inner.list("p/records/")])

    async def list_named(self, session_id: str) -> list[str]:
        """The packs that rows of a session name."""
        return sorted(row.key for row in await read_pack_rows(self.sessions.loop.rows, session_id))


def old_record(number: int, group: str = "g") -> Record:
    """A record that is worth archiving."""
    return Record("k", f"{number:04}", b"%04d" % number * 100, group)


class RecordArchiveContract:
    """A backend overrides the fixture `archive`."""

    @pytest.fixture
    async def archive(self) -> OpenArchive:
        """Empty rows and an empty archive."""
        raise NotImplementedError("bind the contract: override the fixture `archive`")

    @pytest.fixture
    def session_id(self) -> str:
        """An id of this test's own."""
        return f"session-{an_id()}"

    @pytest.fixture
    async def ten(self, archive: OpenArchive, session_id: str) -> tuple[Record, ...]:
        """A session with ten records."""
        puts = tuple(old_record(number) for number in range(10))
        await archive.records.write(session_id, putting(*puts), create=NEW)
        return puts

    # -- reading

    async def test_archived_records_are_read_as_before(
        self, archive: OpenArchive, session_id: str, ten: tuple[Record, ...]
    ) -> None:
        """By name, by group, the newest, and in pages; another process as well."""
        assert await archive.records.archive(session_id, "k", "g") == 10
        for records in (archive.records, archive.opened_again().records):
            view = await records.read(session_id, WantedRecords(groups=(("k", "g"),)))
            assert view.records == ten
            wanted = WantedRecords(names=(ten[3].name, ten[5].name), newest=(("k", "g"),))
            view = await records.read(session_id, wanted)
            assert view.records == (ten[3], ten[5], ten[9])
            page = await records.read_page(session_id, "k", "g", limit=2, descending=True)
            assert page == (ten[9], ten[8])

    async def test_many_records_are_one_object_and_one_request(
        self, archive: OpenArchive, session_id: str, ten: tuple[Record, ...]
    ) -> None:
        """However many of them are wanted; and none for those that are not archived."""
        await archive.records.archive(session_id, "k", "g", before="0008")
        assert len(await archive.list_objects()) == 1
        again = archive.opened_again().records
        archive.blobs.forget()
        view = await again.read(session_id, WantedRecords(newest=(("k", "g"),)))
        assert (view.records, archive.blobs.counts["get"]) == ((ten[9],), 0)
        view = await again.read(session_id, WantedRecords(groups=(("k", "g"),)))
        assert (view.records, archive.blobs.counts["get"]) == (ten, 1)

    async def test_the_rows_of_archived_records_are_short(
        self, archive: OpenArchive, session_id: str, ten: tuple[Record, ...]
    ) -> None:
        """That is what it is for."""
        del ten
        await archive.records.archive(session_id, "k", "g")
        rows = archive.sessions.loop.rows
        [group] = await rows.list_groups(session_id, RECORD, first="", stop="~", limit=9)
        assert all(len(each.body) < 64 for each in await rows.read_group(session_id, RECORD, group, limit=99))

    async def test_what_is_new_or_short_stays(self, archive: OpenArchive, session_id: str) -> None:
        """By key, by time of writing, by length and by number; the time of writing outlives a move."""
        short = Record("k", "0000x", b"short", "g")
        await archive.records.write(session_id, putting(old_record(0), old_record(1), short), create=NEW)
        await asyncio.sleep(0.01)
        between = await archive.sessions.now()
        await asyncio.sleep(0.01)
        # Of another process: this one goes by the store's clock of its last look, and may be late by that.
        await archive.opened_again().records.write(session_id, putting(*map(old_record, range(2, 10))))
        archived = archive.records.archive
        assert await archived(session_id, "k", "g", written_before=between) == 2
        assert await archived(session_id, "k", "g", written_before=between) == 0
        assert await archived(session_id, "k", "g", before="0003") == 1
        assert await archived(session_id, "k", "g", limit=4) == 4
        assert await archived(session_id, "k", "h") == 0
        assert await archived(session_id, "k", "g") == 3
        view = await archive.records.read(session_id, WantedRecords(groups=(("k", "g"),)))
        assert {each.name: each.body for each in view.records} == {
            each.name: each.body for each in (short, *map(old_record, range(10)))
        }

    async def test_large_groups_are_several_packs(self, archive: OpenArchive, session_id: str) -> None:
        """Each is read when one of its records is."""
        puts = tuple(old_record(number) for number in range(250))
        await archive.records.write(session_id, putting(*puts), create=NEW)
        assert await archive.records.archive(session_id, "k", "g") == 250
        assert len(await archive.list_objects()) == 3
        again = archive.opened_again().records
        archive.blobs.forget()
        assert (await again.read(session_id, WantedRecords(names=(puts[120].name,)))).records == (puts[120],)
        assert archive.blobs.counts["get"] == 1
        assert (await again.read(session_id, WantedRecords(groups=(("k", "g"),)))).records == puts

    async def test_a_session_must_be_there(self, archive: OpenArchive, session_id: str) -> None:
        """Nobody would look for the packs of one that is not."""
        with pytest.raises(SessionNotFoundError):
            await archive.records.archive(session_id, "k", "g")
        assert await archive.list_objects() == []

    # -- others write meanwhile

    async def test_a_record_that_is_replaced_meanwhile_stays(
        self, archive: OpenArchive, session_id: str, ten: tuple[Record, ...]
    ) -> None:
        """What is written while the pack is on its way wins; the others are moved."""
        archive.blobs.fail(BlobFault.DELAYED, method="put")
        moving = asyncio.create_task(archive.records.archive(session_id, "k", "g"))
        await self._until_held(archive)
        new = Record("k", "0003", b"new", "g")
        change = RecordChange(puts=(new,), removes=(ten[4].name,))
        await archive.opened_again().records.write(session_id, change)
        await archive.blobs.release()
        assert await moving == 8
        view = await archive.records.read(session_id, WantedRecords(groups=(("k", "g"),)))
        assert view.records == (*ten[:3], new, *ten[5:])

    async def test_two_that_archive_lose_nothing(
        self, archive: OpenArchive, session_id: str, ten: tuple[Record, ...]
    ) -> None:
        """Each record is moved by one of them, and the other's pack goes."""
        again = archive.opened_again()
        moved = await asyncio.gather(
            archive.records.archive(session_id, "k", "g"), again.records.archive(session_id, "k", "g")
        )
        assert sum(moved) == 10
        assert len(await archive.list_objects()) == len(await archive.list_named(session_id)) == 1
        view = await again.records.read(session_id, WantedRecords(groups=(("k", "g"),)))
        assert view.records == ten

    async def test_a_session_that_is_deleted_meanwhile_keeps_nothing(
        self, archive: OpenArchive, session_id: str, ten: tuple[Record, ...]
    ) -> None:
        """Who comes late moves nothing, and takes its own pack away."""
        del ten
        archive.blobs.fail(BlobFault.DELAYED, method="put")
        moving = asyncio.create_task(archive.records.archive(session_id, "k", "g"))
        await self._until_held(archive)
        await archive.opened_again().sessions.delete_session(session_id)
        await archive.blobs.release()
        assert await moving == 0
        assert await archive.list_objects() == []

    async def test_a_pack_that_lands_after_the_delete_is_removed(
        self, archive: OpenArchive, session_id: str, ten: tuple[Record, ...]
    ) -> None:
        """A request that nobody waits for any more may take effect when the session is gone."""
        del ten
        archive.blobs.fail(BlobFault.LATE, method="put")
        with pytest.raises(StoreUnavailableError):
            await archive.records.archive(session_id, "k", "g")
        await archive.sessions.delete_session(session_id)
        await archive.blobs.release()
        assert len(await archive.list_objects()) == 1
        assert (await archive.make_upkeep().run()).packs_deleted == 1
        assert await archive.list_objects() == []

    async def test_a_reader_beside_a_removal_sees_one_or_the_other(
        self, archive: OpenArchive, session_id: str, ten: tuple[Record, ...]
    ) -> None:
        """A pack that is freed between the look at the rows and the request for it is no damage."""
        await archive.records.archive(session_id, "k", "g")
        again = archive.opened_again().records
        archive.blobs.fail(BlobFault.DELAYED, method="get")
        reading = asyncio.create_task(again.read(session_id, WantedRecords(names=(ten[1].name,))))
        await self._until_held(archive)
        await archive.records.write(session_id, RecordChange(clears=(("k", "g"),)))
        assert await archive.make_upkeep().free_packs(session_id) == 1
        await archive.blobs.release()
        assert (await reading).records == ()

    # -- freeing

    async def test_a_pack_is_freed_with_its_last_record(
        self, archive: OpenArchive, session_id: str, ten: tuple[Record, ...]
    ) -> None:
        """Removed, cleared or replaced; until then it stays."""
        await archive.records.archive(session_id, "k", "g")
        upkeep = archive.make_upkeep()
        removes = tuple(each.name for each in ten[1:])
        await archive.records.write(session_id, RecordChange(removes=removes))
        assert await upkeep.free_packs(session_id) == 0
        assert (await archive.records.read(session_id, WantedRecords(names=(ten[0].name,)))).records == ten[
            :1
        ]
        await archive.records.write(session_id, putting(Record("k", "0000", b"new", "g")))
        assert await upkeep.free_packs(session_id) == 1
        assert await archive.list_objects() == await archive.list_named(session_id) == []

    async def test_a_deleted_session_has_no_packs(
        self, archive: OpenArchive, session_id: str, ten: tuple[Record, ...]
    ) -> None:
        """They go with it, and a repeat removes what an interrupted delete left."""
        await archive.records.archive(session_id, "k", "g")
        await archive.records.write("another", putting(old_record(1)), create=NEW)
        await archive.records.archive("another", "k", "g")
        archive.blobs.fail(BlobFault.ERROR_BEFORE, method="delete")
        with pytest.raises(StoreUnavailableError):
            await archive.sessions.delete_session(session_id)
        assert not await archive.sessions.delete_session(session_id)
        assert len(await archive.list_objects()) == 1
        # The session of the same id begins without anything of the first one.
        await archive.records.write(session_id, putting(ten[0]), create=NEW, revive=True)
        view = await archive.records.read(session_id, WantedRecords(groups=(("k", "g"),)))
        assert view.records == ten[:1]
        await archive.sessions.delete_session("another")

    @pytest.mark.parametrize("happens", [False, True], ids=["before", "after"])
    @pytest.mark.parametrize("commit", [1, 2])
    async def test_a_crash_at_a_commit_loses_nothing(
        self, archive: OpenArchive, session_id: str, ten: tuple[Record, ...], commit: int, happens: bool
    ) -> None:
        """Whether it happened or not: a repeat goes on, and upkeep removes what is left over."""
        archive.rows.arm(commit, happens=happens)
        with pytest.raises(StoreUnavailableError):
            await archive.records.archive(session_id, "k", "g")
        await self._check_nothing_is_lost(archive, session_id, ten)

    @pytest.mark.parametrize("fault", [BlobFault.ERROR_BEFORE, BlobFault.ANSWER_LOST, BlobFault.LATE])
    async def test_a_crash_at_the_archive_loses_nothing(
        self, archive: OpenArchive, session_id: str, ten: tuple[Record, ...], fault: BlobFault
    ) -> None:
        """The pack may be there, come later, or never."""
        archive.blobs.fail(fault, method="put")
        with pytest.raises(StoreUnavailableError):
            await archive.records.archive(session_id, "k", "g")
        await archive.blobs.release()
        await self._check_nothing_is_lost(archive, session_id, ten)

    async def _check_nothing_is_lost(
        self, archive: OpenArchive, session_id: str, ten: tuple[Record, ...]
    ) -> None:
        again = archive.opened_again()
        view = await again.records.read(session_id, WantedRecords(groups=(("k", "g"),)))
        assert view.records == ten
        await again.records.archive(session_id, "k", "g")
        await asyncio.sleep(0.01)
        await again.make_upkeep().run()
        [pack] = await again.list_objects()
        assert [pack.rpartition("/")[2]] == await again.list_named(session_id)
        view = await archive.opened_again().records.read(session_id, WantedRecords(groups=(("k", "g"),)))
        assert view.records == ten

    async def test_upkeep_leaves_a_pack_alone_that_is_being_made(
        self, archive: OpenArchive, session_id: str, ten: tuple[Record, ...]
    ) -> None:
        """Until it is given up: then whoever made it moves nothing, and no record is lost."""
        archive.blobs.fail(BlobFault.DELAYED, method="put", times=2)
        moving = asyncio.create_task(archive.records.archive(session_id, "k", "g", limit=4))
        await self._until_held(archive)
        assert await archive.make_upkeep(abandoned_after=60_000).free_packs(session_id) == 0
        await archive.blobs.release()
        assert await moving == 4
        moving = asyncio.create_task(archive.records.archive(session_id, "k", "g"))
        await self._until_held(archive)
        await asyncio.sleep(0.01)
        assert await archive.opened_again().make_upkeep().free_packs(session_id) == 1
        await archive.blobs.release()
        assert await moving == 0
        assert len(await archive.list_objects()) == 1
        view = await archive.opened_again().records.read(session_id, WantedRecords(groups=(("k", "g"),)))
        assert view.records == ten

    async def test_upkeep_goes_through_all_sessions(self, archive: OpenArchive, session_id: str) -> None:
        """Of each it archives every group; ids that no key can hold are found as well."""
        ids = [session_id, "\u00e9" * 200, "x" * 256]
        for each in ids:
            puts = (old_record(1, "g"), old_record(1, "h"), Record("other", "x", b"y" * 500))
            await archive.records.write(each, putting(*puts), create=NEW)
        await asyncio.sleep(0.01)
        kept = await archive.make_upkeep().run()
        assert (kept.archived, kept.failures) == (9, 0)
        assert kept.seen >= 3
        for each in ids:
            await archive.records.write(each, RecordChange(clears=(("k", "g"), ("k", "h"), ("other", ""))))
        kept = await archive.make_upkeep().run()
        assert (kept.archived, kept.packs_deleted) == (0, 9)
        assert await archive.list_objects() == []

    # -- damage

    @pytest.mark.parametrize("damage", ["missing", "cut", "flipped", "empty", "another's", "older"])
    async def test_a_damaged_pack_is_found(
        self, archive: OpenArchive, session_id: str, ten: tuple[Record, ...], damage: str
    ) -> None:
        """It is an error and never content; what is not in it can be read."""
        await archive.records.archive(session_id, "k", "g", before="0005")
        await archive.records.write("another", putting(*ten), create=NEW)
        [key] = await archive.list_objects()
        await archive.records.archive("another", "k", "g")
        [other] = set(await archive.list_objects()) - {key}
        stored, foreign = await archive.blobs.get(key), await archive.blobs.get(other)
        assert stored is not None
        assert foreign is not None
        middle = len(stored.data) - 10
        damaged = {
            "cut": stored.data[:middle],
            "flipped": b"".join(
                (stored.data[:middle], bytes([stored.data[middle] ^ 1]), stored.data[middle + 1 :])
            ),
            "empty": b"",
            "another's": foreign.data,
            "older": encode_pack(session_id, [each.body for each in reversed(ten)]),
        }
        if damage == "missing":
            await archive.blobs.delete(key)
        else:
            await archive.blobs.put(key, damaged[damage])
        again = archive.opened_again().records
        with pytest.raises(StoreCorruptError) as caught:
            await again.read(session_id, WantedRecords(names=(RecordName("k", "0001", "g"),)))
        assert "0001" not in str(caught.value)
        view = await again.read(session_id, WantedRecords(names=(ten[7].name,)))
        assert view.records == (ten[7],)
        await archive.sessions.delete_session("another")

    async def _until_held(self, archive: OpenArchive) -> None:
        """Until a call of the archive waits."""
        while not any(call.outcome == "pending" for call in archive.blobs.calls):  # noqa: ASYNC110 (no event)
            await asyncio.sleep(0.002)
