"""Changing the whole hot thread at once."""

import asyncio
from dataclasses import replace

import pytest

from helix_temporal.errors import InvalidRequestError
from helix_temporal.models.stored_messages import EMPTY, Head, StoredMessage, head_after, size_of
from helix_temporal.stores.protocols.hot import HotHeader, HotTier, Rebase
from helix_temporal.testing.builders import (
    EPOCH,
    a_header,
    a_step,
    grown,
    messages,
)
from helix_temporal.testing.contracts._hot_base import HotTierFixtures, at, image, stored

LOG = messages(30)


def _cut(header: HotHeader, keep: int, *more: StoredMessage, epoch: int = EPOCH + 1) -> Rebase:
    """Open the thread of `LOG` again under a higher epoch, cut at ``keep``, then ``more``."""
    head = head_after(at(LOG, keep), more)
    size = size_of(LOG[:keep]) + size_of(more)
    changed = replace(header, epoch=epoch, head=head, committed=min(header.committed, keep), size=size)
    return Rebase((header.epoch, header.head), changed, keep, more)


class RebaseContract(HotTierFixtures):
    """Opening: compare the hot thread, then replace its header and cut it."""

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
            born=EPOCH - 1,
            cut=3,
            origin='{"fork": "\n ü"}',
        )
        made = await store.rebase(Rebase(None, header, keep=5, messages=LOG[5:8]))
        assert made == header == await store.read_header(thread_id)
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
    async def test_another_thread_is_left_alone(
        self, store: HotTier, thread_id: str, expected: tuple[int, Head]
    ) -> None:
        """Somebody else was faster; the caller reads again."""
        await grown(store, thread_id, LOG[:4])
        before = await image(store, thread_id)
        change = Rebase(expected, replace(a_header(thread_id), epoch=EPOCH + 2), keep=0)
        assert await store.rebase(change) is None
        assert await image(store, thread_id) == before

    async def test_an_absent_thread_is_not_the_expected_one(self, store: HotTier, thread_id: str) -> None:
        """A wiped store is seen."""
        assert await store.rebase(Rebase((EPOCH, EMPTY), a_header(thread_id), keep=0)) is None
        assert await store.read_header(thread_id) is None

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
    async def test_messages_are_added_after_the_cut(self, store: HotTier, thread_id: str, keep: int) -> None:
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
        made = await store.rebase(Rebase((EPOCH, header.head), changed, keep=100, messages=more))
        assert made is not None
        assert await stored(store, thread_id) == many[:100] + more

    async def test_a_repeated_open_finds_its_own_thread(self, store: HotTier, thread_id: str) -> None:
        """The second attempt is refused and learns from the header that the first one did it."""
        header = await grown(store, thread_id, LOG[:4])
        change = _cut(header, 2)
        first = await store.rebase(change)
        assert await store.rebase(change) is None
        assert await store.read_header(thread_id) == first

    async def test_of_many_openers_exactly_one_wins(self, store: HotTier, thread_id: str) -> None:
        """Compare and swap is one step."""
        header = await grown(store, thread_id, LOG[:4])
        changes = [_cut(header, 4, epoch=EPOCH + n) for n in range(1, 21)]
        made = await asyncio.gather(*map(store.rebase, changes))
        assert sum(one is not None for one in made) == 1

    async def test_a_thread_with_another_base_is_left_alone(self, store: HotTier, thread_id: str) -> None:
        """It was evicted and came back in part: the header must not claim what is not held."""
        tail = a_header(thread_id, LOG[10:], base=at(LOG, 10))
        await store.install(tail, LOG[10:], replace=False)
        before = await image(store, thread_id)
        whole = replace(a_header(thread_id, LOG[:20]), epoch=EPOCH + 1)
        assert await store.rebase(Rebase((EPOCH, tail.head), whole, keep=20)) is None
        part = replace(whole, head=at(LOG, 5))
        assert await store.rebase(Rebase((EPOCH, tail.head), part, keep=5)) is None
        assert await image(store, thread_id) == before

    async def test_a_thread_may_be_replaced_from_another_base(self, store: HotTier, thread_id: str) -> None:
        """Nothing of the old one is kept then."""
        tail = a_header(thread_id, LOG[10:20], base=at(LOG, 10))
        await store.install(tail, LOG[10:20], replace=False)
        other = replace(a_header(thread_id, LOG[5:12], base=at(LOG, 5)), epoch=EPOCH + 1)
        assert await store.rebase(Rebase((EPOCH, tail.head), other, keep=5, messages=LOG[5:12])) is not None
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
