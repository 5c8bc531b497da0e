"""Forgetting what an archive holds, in a thread that stays open."""

import asyncio
from dataclasses import replace

import pytest

from helix_temporal.errors import HeadMovedError
from helix_temporal.models.stored_messages import Head, size_of
from helix_temporal.stores.protocols.hot import Eviction, HotTier
from helix_temporal.testing.builders import EPOCH, a_header, a_step, all_of, grown, messages
from helix_temporal.testing.contracts._hot_base import (
    MIB,
    HotTierFixtures,
    TimeToLive,
    at,
    image,
    stored,
)

LOG = messages(200)


class TrimContract(HotTierFixtures):
    """Forgetting what an archive holds, and nothing else."""

    @pytest.mark.parametrize("keep_from", [1, 2, 3, 6, 7, 99, 150])
    async def test_the_archived_messages_below_the_place_are_forgotten(
        self, store: HotTier, thread_id: str, keep_from: int
    ) -> None:
        """A session that stays open needs memory for its newest messages only."""
        before = await grown(store, thread_id, LOG[:2], LOG[2:6], LOG[6:7], LOG[7:150])
        trimmed = await store.trim(thread_id, EPOCH, at(LOG, 150), keep_from)
        gone = size_of(LOG[:keep_from])
        assert trimmed == replace(before, base=at(LOG, keep_from), base_size=gone)
        assert trimmed == await store.read_header(thread_id)
        assert await stored(store, thread_id) == LOG[keep_from:150]

    @pytest.mark.parametrize("position", [1, 3, 5, 8])
    async def test_what_no_archive_holds_is_never_forgotten(
        self, store: HotTier, thread_id: str, position: int
    ) -> None:
        """An append during the flush is in no archive yet."""
        await grown(store, thread_id, LOG[:3], LOG[3:8])
        trimmed = await store.trim(thread_id, EPOCH, at(LOG, position), 99)
        assert trimmed is not None
        assert trimmed.base == at(LOG, position)
        assert await stored(store, thread_id) == LOG[position:8]

    @pytest.mark.parametrize(
        "archived",
        [
            pytest.param(Head(position=5, last_id="m5"), id="another message there"),
            pytest.param(Head(position=8, last_id="m9"), id="another last message"),
            pytest.param(Head(position=9, last_id="m8"), id="beyond the end"),
            pytest.param(Head(position=0, last_id=""), id="nothing archived"),
        ],
    )
    async def test_an_archive_that_the_thread_does_not_continue_proves_nothing(
        self, store: HotTier, thread_id: str, archived: Head
    ) -> None:
        """The hot thread was rolled back, or the archive is of another timeline."""
        await grown(store, thread_id, LOG[:8])
        before = await image(store, thread_id)
        assert await store.trim(thread_id, EPOCH, archived, 5) == await store.read_header(thread_id)
        assert await image(store, thread_id) == before

    @pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH + 1])
    async def test_the_archive_of_another_epoch_proves_nothing(
        self, store: HotTier, thread_id: str, epoch: int
    ) -> None:
        """Somebody else has opened the thread, and may have cut what was archived before."""
        await grown(store, thread_id, LOG[:8])
        before = await image(store, thread_id)
        await store.trim(thread_id, epoch, at(LOG, 8), 5)
        assert await image(store, thread_id) == before

    async def test_a_closed_thread_is_left_as_it_is(self, store: HotTier, thread_id: str) -> None:
        """Whoever opens next compares it with what it saw before the closing."""
        await grown(store, thread_id, LOG[:8])
        await store.close_epoch(thread_id, EPOCH)
        before = await image(store, thread_id)
        await store.trim(thread_id, EPOCH, at(LOG, 8), 5)
        assert await image(store, thread_id) == before

    async def test_forgetting_twice_or_less_changes_nothing(self, store: HotTier, thread_id: str) -> None:
        """A late or repeated call brings nothing back and takes nothing more."""
        await grown(store, thread_id, LOG[:8])
        await store.trim(thread_id, EPOCH, at(LOG, 8), 5)
        before = await image(store, thread_id)
        await store.trim(thread_id, EPOCH, at(LOG, 8), 5)
        await store.trim(thread_id, EPOCH, at(LOG, 8), 2)
        await store.trim(thread_id, EPOCH, at(LOG, 3), 3)
        assert await image(store, thread_id) == before

    async def test_there_is_nothing_to_forget_of_an_absent_thread(
        self, store: HotTier, thread_id: str
    ) -> None:
        """It was evicted meanwhile."""
        assert await store.trim(thread_id, EPOCH, at(LOG, 8), 5) is None

    async def test_the_thread_goes_on(self, store: HotTier, thread_id: str) -> None:
        """Appends, their repeats and reads find what is kept, to the last message."""
        header = await grown(store, thread_id, LOG[:4], LOG[4:10])
        await store.trim(thread_id, EPOCH, header.head, 10)
        assert await stored(store, thread_id) == ()
        step = a_step(thread_id, header.head, inputs=LOG[10:12])
        first = await store.append(step)
        again = await store.append(step)
        assert first is not None
        assert again is not None
        assert (first.head, again.head, again.repeated) == (at(LOG, 12), at(LOG, 12), True)
        view = await store.step_view(thread_id, at(LOG, 11), after=2, limit=9, max_bytes=MIB, ids=9)
        assert view is not None
        assert (view.before, view.after, view.last_id_at_head) == (LOG[10:11], LOG[11:12], "m10")
        assert first.header.size == size_of(LOG[:12])

    async def test_a_step_below_is_not_there_any_more(self, store: HotTier, thread_id: str) -> None:
        """Whether it stands can't be told from what is held."""
        await grown(store, thread_id, LOG[:4], LOG[4:10])
        await store.trim(thread_id, EPOCH, at(LOG, 10), 6)
        with pytest.raises(HeadMovedError):
            await store.append(a_step(thread_id, at(LOG, 4), inputs=LOG[4:10]))
        view = await store.step_view(thread_id, at(LOG, 4), after=2, limit=9, max_bytes=MIB, ids=9)
        assert view is not None
        assert (view.after, view.before, view.last_id_at_head) == ((), (), None)

    async def test_appends_at_the_same_time_survive(self, store: HotTier, thread_id: str) -> None:
        """The archive that is being forgotten is always a little behind."""
        await grown(store, thread_id, LOG[:100])

        async def append_all() -> None:
            for position in range(100, 130):
                await store.append(a_step(thread_id, at(LOG, position), inputs=LOG[position : position + 1]))

        async def trim_all() -> None:
            for position in range(80, 130):
                await store.trim(thread_id, EPOCH, at(LOG, position), position - 3)

        await asyncio.gather(append_all(), trim_all(), trim_all())
        snapshot = await store.read_snapshot(thread_id, 0)
        assert snapshot is not None
        assert snapshot.header.head == at(LOG, 130)
        assert snapshot.messages == LOG[snapshot.first : 130]
        assert snapshot.header.base == at(LOG, snapshot.first)
        assert snapshot.header.base_size == size_of(LOG[: snapshot.first])

    async def test_a_large_thread_is_forgotten_at_once(self, store: HotTier, thread_id: str) -> None:
        """As a hydration of many messages left it."""
        log = messages(9_000)
        await store.install(a_header(thread_id, log), log, replace=False)
        trimmed = await store.trim(thread_id, EPOCH, at(log, 9_000), 8_999)
        assert trimmed is not None
        assert trimmed.base_size == size_of(log[:8_999])
        assert await stored(store, thread_id) == log[8_999:]

    async def test_when_it_expires_stays_as_it_was(
        self, store: HotTier, thread_id: str, time_to_live: TimeToLive
    ) -> None:
        """Only an evict lets a hot thread expire, and only an append stops that."""
        header = await grown(store, thread_id, LOG[:8])
        await store.trim(thread_id, EPOCH, at(LOG, 8), 2)
        assert await time_to_live(thread_id) is None
        assert await store.evict(thread_id, EPOCH, all_of(header), warm_ttl=60.0) is Eviction.KEPT_WARM
        await store.trim(thread_id, EPOCH, at(LOG, 8), 5)
        assert await time_to_live(thread_id) is not None
        assert await stored(store, thread_id) == LOG[5:8]
