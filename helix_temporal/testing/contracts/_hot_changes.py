"""Changing the whole record at once: rebase and install."""

import asyncio
from dataclasses import replace

import pytest

from helix_temporal.errors import FencedError, InvalidRequestError
from helix_temporal.models.records import EMPTY, Head, Record, head_after, size_of
from helix_temporal.stores.protocols.hot import HotHeader, HotTier, Rebase
from helix_temporal.testing.builders import (
    EPOCH,
    a_header,
    a_step,
    archived,
    grown,
    messages,
    opened,
)
from helix_temporal.testing.contracts._hot_base import HotTierFixtures, at, image, stored

LOG = messages(30)


def _cut(header: HotHeader, keep: int, *more: Record, epoch: int = EPOCH + 1) -> Rebase:
    """Open the thread of `LOG` again under a higher epoch, cut at ``keep``, then ``more``."""
    head = head_after(at(LOG, keep), more)
    size = size_of(LOG[:keep]) + size_of(more)
    changed = replace(header, epoch=epoch, head=head, committed=min(header.committed, keep), size=size)
    return Rebase((header.epoch, header.head), changed, keep, more)


class RebaseContract(HotTierFixtures):
    """Opening: compare the record, then replace its header and cut it."""

    async def test_an_absent_thread_is_created(self, store: HotTier, thread_id: str) -> None:
        """The header is kept to the last field."""
        header = HotHeader(
            thread_id=thread_id,
            epoch=EPOCH,
            owner="run \n ü",
            head=at(LOG, 8),
            committed=7,
            base=at(LOG, 5),
            closed=True,
            slice=b"\x00\n 1 2",
            slice_version=4,
            adapter="anthropic",
            size=8_765,
            archived=6,
            archived_size=4_321,
            unarchived_since=123,
            deleted=True,
        )
        made = await store.rebase(Rebase(None, header, keep=5, records=LOG[5:8]))
        assert made == header == await store.header(thread_id)
        assert await stored(store, thread_id) == LOG[5:8]

    async def test_a_thread_that_should_be_absent_is_left_alone(self, store: HotTier, thread_id: str) -> None:
        """Creating never overwrites."""
        await grown(store, thread_id, LOG[:4])
        before = await image(store, thread_id)
        assert await store.rebase(Rebase(None, a_header(thread_id), keep=0)) is None
        assert await image(store, thread_id) == before

    @pytest.mark.parametrize(
        "expected",
        [
            pytest.param((EPOCH - 1, at(LOG, 4)), id="lower epoch"),
            pytest.param((EPOCH + 1, at(LOG, 4)), id="higher epoch"),
            pytest.param((EPOCH, at(LOG, 3)), id="earlier head"),
            pytest.param((EPOCH, Head(position=4, last_id="x")), id="other message"),
        ],
    )
    async def test_another_record_is_left_alone(
        self, store: HotTier, thread_id: str, expected: tuple[int, Head]
    ) -> None:
        """Somebody else was faster; the caller reads again."""
        await grown(store, thread_id, LOG[:4])
        before = await image(store, thread_id)
        change = Rebase(expected, replace(a_header(thread_id), epoch=EPOCH + 2), keep=0)
        assert await store.rebase(change) is None
        assert await image(store, thread_id) == before

    async def test_an_absent_record_is_not_the_expected_one(self, store: HotTier, thread_id: str) -> None:
        """A wiped store is seen."""
        assert await store.rebase(Rebase((EPOCH, EMPTY), a_header(thread_id), keep=0)) is None
        assert await store.header(thread_id) is None

    @pytest.mark.parametrize("keep", range(0, 31, 2))
    async def test_what_lies_beyond_is_cut(self, store: HotTier, thread_id: str, keep: int) -> None:
        """At a step's edge and inside one; the thread then goes on from the cut."""
        header = await grown(store, thread_id, LOG[:1], LOG[1:3], LOG[3:20], LOG[20:22], LOG[22:])
        change = _cut(header, keep)
        made = await store.rebase(change)
        assert made is not None
        assert replace(made, unarchived_since=0) == replace(change.header, unarchived_since=0)
        assert await stored(store, thread_id) == LOG[:keep]
        more = messages(3, prefix="n")
        await store.append(a_step(thread_id, made.head, inputs=more, epoch=EPOCH + 1))
        assert await stored(store, thread_id) == LOG[:keep] + more

    @pytest.mark.parametrize("keep", [0, 3, 11, 30])
    async def test_records_are_added_after_the_cut(self, store: HotTier, thread_id: str, keep: int) -> None:
        """Rewind and repair are one change."""
        header = await grown(store, thread_id, LOG[:3], LOG[3:20], LOG[20:])
        more = messages(100, prefix="n")
        made = await store.rebase(_cut(header, keep, *more))
        assert made is not None
        assert await stored(store, thread_id) == LOG[:keep] + more

    async def test_a_long_thread_is_cut_and_extended(self, store: HotTier, thread_id: str) -> None:
        """However many fields or rows that takes."""
        many = messages(5_000, prefix="old")
        header = a_header(thread_id, many)
        await store.install(header, many, replace=False)
        more = messages(4_000, prefix="new")
        changed = replace(a_header(thread_id, many[:100] + more), epoch=EPOCH + 1)
        made = await store.rebase(Rebase((EPOCH, header.head), changed, keep=100, records=more))
        assert made is not None
        assert await stored(store, thread_id) == many[:100] + more

    async def test_a_repeated_open_finds_its_own_record(self, store: HotTier, thread_id: str) -> None:
        """The second attempt is refused and learns from the header that the first one did it."""
        header = await grown(store, thread_id, LOG[:4])
        change = _cut(header, 2)
        first = await store.rebase(change)
        assert await store.rebase(change) is None
        assert await store.header(thread_id) == first

    async def test_of_many_openers_exactly_one_wins(self, store: HotTier, thread_id: str) -> None:
        """Compare and swap is one step."""
        header = await grown(store, thread_id, LOG[:4])
        changes = [_cut(header, 4, epoch=EPOCH + n) for n in range(1, 21)]
        made = await asyncio.gather(*map(store.rebase, changes))
        assert sum(one is not None for one in made) == 1

    async def test_a_record_with_another_base_is_left_alone(self, store: HotTier, thread_id: str) -> None:
        """It was evicted and came back in part: the header must not claim what is not held."""
        tail = a_header(thread_id, LOG[10:], base=at(LOG, 10))
        await store.install(tail, LOG[10:], replace=False)
        before = await image(store, thread_id)
        whole = replace(a_header(thread_id, LOG[:20]), epoch=EPOCH + 1)
        assert await store.rebase(Rebase((EPOCH, tail.head), whole, keep=20)) is None
        part = replace(whole, head=at(LOG, 5))
        assert await store.rebase(Rebase((EPOCH, tail.head), part, keep=5)) is None
        assert await image(store, thread_id) == before

    async def test_a_record_may_be_replaced_from_another_base(self, store: HotTier, thread_id: str) -> None:
        """Nothing of the old one is kept then."""
        tail = a_header(thread_id, LOG[10:20], base=at(LOG, 10))
        await store.install(tail, LOG[10:20], replace=False)
        other = replace(a_header(thread_id, LOG[5:12], base=at(LOG, 5)), epoch=EPOCH + 1)
        assert await store.rebase(Rebase((EPOCH, tail.head), other, keep=5, records=LOG[5:12])) is not None
        assert await stored(store, thread_id) == LOG[5:12]

    @pytest.mark.parametrize(
        ("keep", "head"),
        [
            pytest.param(2, at(LOG, 4), id="head too far"),
            pytest.param(5, at(LOG, 5), id="keeps more than there is"),
            pytest.param(2, at(LOG, 1), id="head too near"),
        ],
    )
    async def test_a_change_that_contradicts_itself_is_refused(
        self, store: HotTier, thread_id: str, keep: int, head: Head
    ) -> None:
        """A header must describe what is there."""
        header = await grown(store, thread_id, LOG[:4])
        before = await image(store, thread_id)
        with pytest.raises(InvalidRequestError):
            await store.rebase(Rebase((EPOCH, header.head), replace(header, head=head), keep))
        assert await image(store, thread_id) == before


class InstallContract(HotTierFixtures):
    """Becoming hot: whole, and never over something newer."""

    async def test_an_absent_thread_becomes_hot(self, store: HotTier, thread_id: str) -> None:
        """Header and records as the archive has them."""
        header = replace(
            a_header(thread_id, LOG), committed=29, archived=30, archived_size=size_of(LOG), slice=b"{}"
        )
        assert await store.install(header, LOG, replace=False) == header
        assert await store.header(thread_id) == header
        assert await stored(store, thread_id) == LOG

    async def test_a_hot_thread_is_never_touched(self, store: HotTier, thread_id: str) -> None:
        """A late hydration would otherwise lose what was appended since."""
        await grown(store, thread_id, LOG[:4])
        before = await image(store, thread_id)
        newer = replace(a_header(thread_id, LOG), epoch=EPOCH + 1)
        there = await store.install(newer, LOG, replace=False)
        assert there == await store.header(thread_id)
        assert await image(store, thread_id) == before

    @pytest.mark.parametrize("replacing", [False, True])
    async def test_twenty_at_once_give_one_copy(
        self, store: HotTier, thread_id: str, replacing: bool
    ) -> None:
        """Workers that hydrate at the same time all get the same thread, and none gets a part."""
        header = a_header(thread_id, LOG)
        made = await asyncio.gather(
            *(store.install(header, LOG, replace=replacing) for _ in range(20)),
        )
        assert set(made) == {await store.header(thread_id)}
        assert await stored(store, thread_id) == LOG

    async def test_a_lower_epoch_is_replaced(self, store: HotTier, thread_id: str) -> None:
        """The archive's manifest took the epoch; the hot copy follows."""
        await grown(store, thread_id, messages(9, prefix="old"))
        header = replace(a_header(thread_id, LOG), epoch=EPOCH + 1)
        made = await store.install(header, LOG, replace=True)
        assert (made.epoch, made.head) == (EPOCH + 1, at(LOG, 30))
        assert await stored(store, thread_id) == LOG

    async def test_a_higher_epoch_is_not_replaced(self, store: HotTier, thread_id: str) -> None:
        """An opener that is late must stop."""
        await grown(store, thread_id, LOG[:4])
        before = await image(store, thread_id)
        with pytest.raises(FencedError):
            await store.install(replace(a_header(thread_id, LOG), epoch=EPOCH - 1), LOG, replace=True)
        assert await image(store, thread_id) == before

    @pytest.mark.parametrize("position", [0, 1, 5, 8])
    async def test_a_record_that_continues_the_archive_is_kept(
        self, store: HotTier, thread_id: str, position: int
    ) -> None:
        """It holds the archive's last message at its place, and maybe more that is not archived."""
        await grown(store, thread_id, LOG[:3], LOG[3:8])
        before = await image(store, thread_id)
        await store.install(a_header(thread_id, LOG[:position]), LOG[:position], replace=True)
        assert await image(store, thread_id) == before

    @pytest.mark.parametrize(
        "archive",
        [
            pytest.param(LOG[:12], id="longer"),
            pytest.param((*LOG[:7], *messages(1, prefix="other")), id="other message"),
        ],
    )
    async def test_a_record_that_does_not_continue_the_archive_is_replaced(
        self, store: HotTier, thread_id: str, archive: tuple[Record, ...]
    ) -> None:
        """A store that was rolled back is mended from the archive."""
        await grown(store, thread_id, LOG[:3], LOG[3:8])
        made = await store.install(a_header(thread_id, archive), archive, replace=True)
        assert made.head == head_after(EMPTY, archive)
        assert await stored(store, thread_id) == archive

    async def test_a_record_that_continues_right_at_its_base_is_kept(
        self, store: HotTier, thread_id: str
    ) -> None:
        """It knows the id of the message before the base."""
        await store.install(a_header(thread_id, LOG[10:], base=at(LOG, 10)), LOG[10:], replace=False)
        before = await image(store, thread_id)
        await store.install(a_header(thread_id, LOG[:10]), LOG[:10], replace=True)
        assert await image(store, thread_id) == before

    async def test_a_record_whose_base_lies_beyond_the_archive_is_replaced(
        self, store: HotTier, thread_id: str
    ) -> None:
        """It cannot show that it continues it."""
        await store.install(a_header(thread_id, LOG[10:], base=at(LOG, 10)), LOG[10:], replace=False)
        await store.install(a_header(thread_id, LOG[:9]), LOG[:9], replace=True)
        assert await stored(store, thread_id) == LOG[:9]

    async def test_a_closed_epoch_stays_closed(self, store: HotTier, thread_id: str) -> None:
        """Mending the record must not let late attempts in again."""
        await opened(store, thread_id)
        await store.close_epoch(thread_id, EPOCH)
        made = await store.install(a_header(thread_id, LOG), LOG, replace=True)
        assert made.closed
        higher = replace(a_header(thread_id, LOG), epoch=EPOCH + 1)
        assert not (await store.install(higher, LOG, replace=True)).closed

    @pytest.mark.parametrize("replacing", [False, True])
    async def test_a_large_thread_becomes_hot_in_one_step(
        self, store: HotTier, thread_id: str, replacing: bool
    ) -> None:
        """Ten thousand messages, and nobody sees a part of them."""
        many = messages(10_000, size=500)
        header = a_header(thread_id, many)
        seen: list[object] = []

        async def watch() -> None:
            while header.head.position not in seen:
                there = await store.header(thread_id)
                seen.append(None if there is None else there.head.position)
                await asyncio.sleep(0)

        made, _ = await asyncio.gather(store.install(header, many, replace=replacing), watch())
        assert made.head == header.head
        assert set(seen) <= {None, 10_000}
        assert await stored(store, thread_id) == many

    async def test_twenty_large_installs_at_once_give_one_copy(self, store: HotTier, thread_id: str) -> None:
        """Parts of different installs never mix."""
        many = messages(1_500, size=1_000)
        header = a_header(thread_id, many)
        made = await asyncio.gather(*(store.install(header, many, replace=True) for _ in range(20)))
        assert set(made) == {await store.header(thread_id)}
        assert await stored(store, thread_id) == many

    async def test_a_thread_without_messages_becomes_hot(self, store: HotTier, thread_id: str) -> None:
        """An archive may hold an empty thread."""
        assert await store.install(a_header(thread_id), (), replace=True) == a_header(thread_id)

    async def test_time_waits_only_for_what_is_not_archived(self, store: HotTier, thread_id: str) -> None:
        """An install of the archive's own content has nothing waiting."""
        header = replace(a_header(thread_id, LOG), archived=30, unarchived_since=5)
        assert (await store.install(header, LOG, replace=False)).unarchived_since == 0
        more = await store.append(a_step(thread_id, header.head))
        assert more is not None
        assert (await archived(store, more.header)).unarchived_since == 0

    @pytest.mark.parametrize("head", [at(LOG, 29), Head(position=30, last_id="x"), at(LOG, 8)])
    async def test_records_that_do_not_lead_to_the_head_are_refused(
        self, store: HotTier, thread_id: str, head: Head
    ) -> None:
        """A damaged copy never becomes hot."""
        with pytest.raises(InvalidRequestError):
            await store.install(replace(a_header(thread_id, LOG), head=head), LOG, replace=False)
        assert await store.header(thread_id) is None
