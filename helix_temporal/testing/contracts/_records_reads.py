"""Reading records: by name, whole groups, the newest, in pages."""

import pytest

from helix_temporal.errors import InvalidIdError, InvalidMessageError, InvalidRequestError, TooLargeError
from helix_temporal.stores.protocols.records import Record, RecordName, Records, RecordView, WantedRecords
from helix_temporal.testing.contracts._records_base import (
    NEW,
    RecordsFixtures,
    a_record,
    putting,
    written,
)

ALL_BYTES = bytes(range(256))


class ReadContract(RecordsFixtures):
    """One instant of some records."""

    async def test_an_unknown_session_has_none(self, records: Records, session_id: str) -> None:
        """Not an error: whoever writes first begins with this."""
        wanted = WantedRecords(names=(RecordName("k", "a"),), groups=(("k", ""),), newest=(("k", ""),))
        assert await records.read(session_id, wanted) == RecordView(0, 0, exists=False, records=())

    async def test_bytes_come_back_as_they_went(self, records: Records, session_id: str) -> None:
        """Of any kind and length; an empty body is one too."""
        puts = (
            Record("a", "k", ALL_BYTES),
            Record("a.b-c_D", "k", b"", "group"),
            Record("b", "\u00e9/../x y", b"x" * 300_000, "\U0001f600|1:2"),
        )
        revision = await written(records, session_id, *puts)
        view = await records.read(session_id, WantedRecords(names=tuple(each.name for each in puts)))
        assert view == RecordView(revision, 0, exists=True, records=puts)
        assert view.find_record("a", "k") == puts[0]
        assert view.find_record("a", "k", "group") is None

    async def test_kind_and_group_are_told_apart(self, records: Records, session_id: str) -> None:
        """However they are put together: no two names are one."""
        puts = (
            Record("k", "x", b"1", "a/b"),
            Record("k", "b", b"2", "a"),
            Record("k-a", "x", b"3", "b"),
            Record("k.a", "x", b"4", "b"),
            Record("k", "x", b"5"),
        )
        await written(records, session_id, *puts)
        view = await records.read(session_id, WantedRecords(names=tuple(each.name for each in puts)))
        assert set(view.records) == set(puts)
        view = await records.read(session_id, WantedRecords(groups=(("k", "a"), ("k", ""))))
        assert set(view.records) == {puts[1], puts[4]}

    async def test_a_group_comes_by_key(self, records: Records, session_id: str) -> None:
        """By the bytes of the keys, whatever the order of writing."""
        names = ["B", "a", "a0", "b", "\u00e9", "\uffee", "\U0001f600"]
        await written(records, session_id, *(a_record(each, "g") for each in reversed(names)))
        view = await records.read(session_id, WantedRecords(groups=(("k", "g"),)))
        assert [each.key for each in view.list_records("k", "g")] == names

    async def test_the_newest_of_a_group_is_found(self, records: Records, session_id: str) -> None:
        """Each group has its own, and a group without records none."""
        puts = [a_record(f"{n:03}", group) for n in range(12) for group in ("g", "h")]
        await written(records, session_id, *puts, a_record("9", "g", "other"))
        view = await records.read(session_id, WantedRecords(newest=(("k", "g"), ("k", "h"), ("k", "i"))))
        assert [each.name for each in view.records] == [("k", "011", "g"), ("k", "011", "h")]

    async def test_a_record_wanted_twice_comes_once(self, records: Records, session_id: str) -> None:
        """Callers count what they get."""
        await written(records, session_id, a_record("a"), a_record("b"))
        wanted = WantedRecords((RecordName("k", "b"),), (("k", ""),), (("k", ""),))
        assert len((await records.read(session_id, wanted)).records) == 2

    async def test_pages_go_through_a_group(self, records: Records, session_id: str) -> None:
        """Forward and backward, each record once, and no other group's."""
        puts = [a_record(f"{n:02}", group) for n in range(10) for group in ("", "g")]
        await written(records, session_id, *puts)
        page = await records.read_page(session_id, "k", limit=4)
        assert [each.key for each in page] == ["00", "01", "02", "03"]
        page = await records.read_page(session_id, "k", limit=9, after="03")
        assert [each.key for each in page] == ["04", "05", "06", "07", "08", "09"]
        page = await records.read_page(session_id, "k", "g", limit=2, after="05", descending=True)
        assert page == (a_record("04", "g"), a_record("03", "g"))
        assert await records.read_page(session_id, "none", limit=9) == ()

    async def test_groups_of_a_kind_are_listed(self, records: Records, session_id: str) -> None:
        """In order, each once, and those of no other kind."""
        groups = ("", "g", "g/h", "\u00e9")
        puts = [a_record(key, group) for group in groups for key in ("1", "2", "3")]
        await written(records, session_id, *puts, a_record("1", "x", "kk"), a_record("1", "y", "k.k"))
        assert await records.list_groups(session_id, "k") == groups
        assert await records.list_groups(session_id, "k.k") == ("y",)
        assert await records.list_groups(session_id, "none") == ()

    async def test_groups_are_listed_by_how_they_begin(self, records: Records, session_id: str) -> None:
        """Whatever the prefix ends with."""
        groups = ("a", "a/b", "a0", "b", "\ud7ff", "\ud7ffx", "\ue000", "\U0010ffff", "\U0010ffffz")
        await written(records, session_id, *(a_record("1", group) for group in groups))
        for prefix in ("", "a", "a/", "\ud7ff", "\U0010ffff", "c"):
            expected = tuple(each for each in groups if each.startswith(prefix))
            assert await records.list_groups(session_id, "k", prefix=prefix) == expected

    async def test_many_groups_are_listed(self, records: Records, session_id: str) -> None:
        """More than one look finds."""
        groups = tuple(f"{n:04}" for n in range(1_200))
        await written(records, session_id, *(a_record("1", group) for group in groups))
        assert await records.list_groups(session_id, "k") == groups


class RecordNameContract(RecordsFixtures):
    """What is no name is refused, before anything is stored."""

    @pytest.mark.parametrize(
        ("record", "error"),
        [
            (Record("", "k", b""), InvalidRequestError),
            (Record("a/b", "k", b""), InvalidRequestError),
            (Record("x" * 65, "k", b""), InvalidRequestError),
            (Record("k", "", b""), InvalidRequestError),
            (Record("k", "a\0b", b""), InvalidMessageError),
            (Record("k", "a", b"", "\ud800"), InvalidMessageError),
            (Record("k", "x" * 1025, b""), TooLargeError),
            (Record("k", "a", b"", "\u00e9" * 513), TooLargeError),
            (Record("k", "a", b"x" * (16 * 1024 * 1024 + 1)), TooLargeError),
            (Record("k", "a", "text"), InvalidRequestError),  # type: ignore[arg-type]
        ],
        ids=["no kind", "kind", "long kind", "no key", "NUL", "surrogate", "key", "group", "body", "text"],
    )
    async def test_what_no_store_can_keep_is_refused(
        self, records: Records, session_id: str, record: Record, error: type[Exception]
    ) -> None:
        """The same on every store, and nothing of the change is written."""
        with pytest.raises(error):
            await records.write(session_id, putting(a_record("good"), record), create=NEW)
        assert not (await records.read(session_id)).exists

    async def test_an_unacceptable_session_id_is_refused(self, records: Records) -> None:
        """By every method."""
        with pytest.raises(InvalidIdError):
            await records.read("")
        with pytest.raises(InvalidIdError):
            await records.write("a\nb", putting(a_record("a")), create=NEW)
        with pytest.raises(InvalidIdError):
            await records.take_over("", create=NEW)

    async def test_a_page_has_a_limit(self, records: Records, session_id: str) -> None:
        """Nobody reads a whole store by mistake."""
        with pytest.raises(InvalidRequestError):
            await records.read_page(session_id, "k", limit=0)
        with pytest.raises(InvalidRequestError):
            await records.read_page(session_id, "k", limit=1_001)
