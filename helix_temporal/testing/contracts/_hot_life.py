"""How a hot thread ends, what never expires, and whose it is."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from helix_temporal.errors import FencedError
from helix_temporal.models.stored_messages import Head
from helix_temporal.stores.protocols.hot import Archived, Eviction, HotHeader, HotTier, Rebase, scan_threads
from helix_temporal.testing.builders import (
    EPOCH,
    a_header,
    a_message,
    a_step,
    all_of,
    archived,
    grown,
    messages,
    opened,
)
from helix_temporal.testing.contracts._hot_base import HotTierFixtures, TimeToLive, at, image, stored

LOG = messages(6)


class EvictContract(HotTierFixtures):
    """Dropping exactly what is archived."""

    async def test_what_is_archived_is_dropped(self, store: HotTier, thread_id: str) -> None:
        """A thread at rest needs no memory."""
        header = await grown(store, thread_id, LOG)
        assert await store.evict(thread_id, EPOCH, all_of(header)) is Eviction.DROPPED
        assert await store.read_header(thread_id) is None
        assert await store.evict(thread_id, EPOCH, all_of(header)) is Eviction.ABSENT

    @pytest.mark.parametrize("warm_ttl", [None, 60.0])
    @pytest.mark.parametrize(
        "archive",
        [
            pytest.param(lambda known: replace(known, head=at(LOG, 5)), id="head"),
            pytest.param(lambda known: replace(known, head=Head(position=6, last_id="x")), id="last id"),
            pytest.param(lambda known: replace(known, committed=5), id="committed"),
            pytest.param(lambda known: replace(known, slice_version=0), id="slice"),
        ],
    )
    async def test_what_the_archive_lacks_is_kept(
        self,
        store: HotTier,
        thread_id: str,
        time_to_live: TimeToLive,
        archive: Callable[[Archived], Archived],
        warm_ttl: float | None,
    ) -> None:
        """An append, a commit or a save during the flush survives it."""
        header = await grown(store, thread_id, LOG[:4])
        await store.save_slice(thread_id, EPOCH, b"x", 0)
        done = await store.append(replace(a_step(thread_id, header.head, inputs=LOG[4:]), commits=True))
        assert done is not None
        before = await image(store, thread_id)
        known = archive(all_of(done.header))
        assert await store.evict(thread_id, EPOCH, known, warm_ttl=warm_ttl) is Eviction.NEWER
        assert await image(store, thread_id) == before
        assert await time_to_live(thread_id) is None

    @pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH + 1])
    async def test_the_thread_of_another_epoch_is_kept(
        self, store: HotTier, thread_id: str, epoch: int
    ) -> None:
        """Somebody else has opened it, or it was rolled back: not the caller's to drop."""
        header = await grown(store, thread_id, LOG)
        assert await store.evict(thread_id, epoch, all_of(header)) is Eviction.NEWER
        assert await stored(store, thread_id) == LOG

    async def test_a_closed_thread_can_be_dropped(self, store: HotTier, thread_id: str) -> None:
        """The finaliser closes before it evicts."""
        header = await grown(store, thread_id, LOG)
        await store.close_epoch(thread_id, EPOCH)
        assert await store.evict(thread_id, EPOCH, all_of(header)) is Eviction.DROPPED

    async def test_a_warm_thread_expires_by_itself(self, store: HotTier, thread_id: str) -> None:
        """It is a cache of the archive for a while."""
        header = await grown(store, thread_id, LOG)
        assert await store.evict(thread_id, EPOCH, all_of(header), warm_ttl=0.02) is Eviction.KEPT_WARM
        for _ in range(3_000):
            if await store.read_header(thread_id) is None:
                return
            await asyncio.sleep(0.01)
        pytest.fail("a hot thread with a time to live of 20 ms is still there")

    async def test_a_warm_thread_knows_that_it_is_archived(
        self, store: HotTier, thread_id: str, time_to_live: TimeToLive
    ) -> None:
        """The next flush reads from there."""
        header = await grown(store, thread_id, LOG)
        await store.evict(thread_id, EPOCH, all_of(header), warm_ttl=60)
        warm = await store.read_header(thread_id)
        assert warm == replace(header, archived=6, archived_size=header.size, unarchived_since=0)
        left = await time_to_live(thread_id)
        assert left is not None
        assert 0 < left <= 60


async def _append(store: HotTier, header: HotHeader) -> None:
    await store.append(a_step(header.thread_id, header.head))


async def _commit(store: HotTier, header: HotHeader) -> None:
    await store.append(replace(a_step(header.thread_id, inputs=LOG), commits=True))


async def _save(store: HotTier, header: HotHeader) -> None:
    await store.save_slice(header.thread_id, EPOCH, b"x", 0)


async def _rebase(store: HotTier, header: HotHeader) -> None:
    await store.rebase(Rebase((EPOCH, header.head), header, keep=6))


async def _install(store: HotTier, header: HotHeader) -> None:
    await store.install(replace(header, epoch=EPOCH + 1), LOG, replace=True)


class ExpiryContract(HotTierFixtures):
    """Unarchived data never expires."""

    @pytest.mark.parametrize("write", [_append, _commit, _save, _rebase, _install])
    async def test_a_write_makes_a_warm_thread_unexpiring(
        self,
        store: HotTier,
        thread_id: str,
        time_to_live: TimeToLive,
        write: Callable[..., object],
    ) -> None:
        """What is new is not in the archive."""
        header = await grown(store, thread_id, LOG)
        await store.evict(thread_id, EPOCH, all_of(header), warm_ttl=60)
        result = write(store, header)
        assert asyncio.iscoroutine(result)
        await result
        assert await time_to_live(thread_id) is None
        assert await store.read_header(thread_id) is not None

    async def test_a_repeat_that_changes_nothing_leaves_a_warm_thread_warm(
        self, store: HotTier, thread_id: str, time_to_live: TimeToLive
    ) -> None:
        """A late attempt must not pin a thread in memory for good."""
        header = await grown(store, thread_id, LOG)
        await store.evict(thread_id, EPOCH, all_of(header), warm_ttl=60)
        await store.append(a_step(thread_id, inputs=LOG))
        await store.close_epoch(thread_id, EPOCH)
        assert await time_to_live(thread_id) is not None

    async def test_a_thread_has_no_time_to_live_by_itself(
        self, store: HotTier, thread_id: str, time_to_live: TimeToLive
    ) -> None:
        """However it came to be, small or large."""
        await grown(store, thread_id, LOG)
        assert await time_to_live(thread_id) is None
        many = messages(2_000, size=1_000)
        other = f"{thread_id}-installed"
        await store.install(a_header(other, many), many, replace=False)
        assert await time_to_live(other) is None
        await archived(store, await grown(store, f"{thread_id}-archived", LOG))
        assert await time_to_live(f"{thread_id}-archived") is None


class DropContract(HotTierFixtures):
    """Deleting for good."""

    @pytest.mark.parametrize("epoch", [EPOCH, EPOCH + 1])
    async def test_a_dropped_thread_is_gone(self, store: HotTier, thread_id: str, epoch: int) -> None:
        """Archived or not, closed or not."""
        await grown(store, thread_id, LOG)
        await store.close_epoch(thread_id, EPOCH)
        await store.drop(thread_id, epoch)
        assert await store.read_header(thread_id) is None
        await store.drop(thread_id, epoch)

    async def test_a_higher_epoch_is_not_dropped(self, store: HotTier, thread_id: str) -> None:
        """Somebody opened the thread after the deletion was asked for."""
        await grown(store, thread_id, LOG)
        with pytest.raises(FencedError):
            await store.drop(thread_id, EPOCH - 1)
        assert await stored(store, thread_id) == LOG


HOSTILE_IDS = [
    "{", "}", "{}", "a{b}c", "}{", "a:b", "a", "A", "*", "?", "[a]", "\\", "a/b", "../a", " a", "a ", "~61",
    "%61", "é", "e\u0301", "ß", "ss", "\U0001f600", "thread:staging:1", "{a}:staging:1", "a:payload:b",
    "x" * 256, "x" * 255 + "y", "\U0001f600" * 128, "é" * 256,
]  # fmt: skip


class IdentityContract(HotTierFixtures):
    """Whose hot thread it is."""

    async def test_no_two_ids_share_a_thread(self, store: HotTier) -> None:
        """Whatever characters they hold: braces, wildcards, separators, look-alikes."""
        for n, thread_id in enumerate(HOSTILE_IDS):
            await grown(store, thread_id, (a_message(f"of {n}", message_id=f"m{n}"),))
        for n, thread_id in enumerate(HOSTILE_IDS):
            header = await store.read_header(thread_id)
            assert header is not None
            assert header.thread_id == thread_id
            assert await stored(store, thread_id) == (a_message(f"of {n}", message_id=f"m{n}"),)
        assert sorted([each.thread_id async for each in scan_threads(store)]) == sorted(HOSTILE_IDS)
        for thread_id in HOSTILE_IDS:
            await store.drop(thread_id, EPOCH)
        assert [each.thread_id async for each in scan_threads(store)] == []

    async def test_message_ids_may_hold_anything(self, store: HotTier, thread_id: str) -> None:
        """Clients choose them."""
        messages = tuple(a_message(message_id=hostile) for hostile in HOSTILE_IDS)
        header = await grown(store, thread_id, messages[:1], messages[1:10], messages[10:])
        assert await stored(store, thread_id) == messages
        view = await store.step_view(thread_id, header.head, after=0, limit=1, max_bytes=1, ids=99)
        assert view is not None
        assert (*view.earlier_ids, view.before[0].id) == tuple(HOSTILE_IDS)

    async def test_a_scan_finds_all_threads(self, store: HotTier, thread_id: str) -> None:
        """The maintenance worker sees whatever is hot, and nothing else."""
        expected = {f"{thread_id}-{n}" for n in range(300)}
        await asyncio.gather(*(opened(store, name) for name in expected))
        found = [each.thread_id async for each in scan_threads(store)]
        assert set(found) == expected

    async def test_pages_of_a_scan_add_up(self, store: HotTier, thread_id: str) -> None:
        """However small they are; a page may be empty before the end."""
        expected = {f"{thread_id}-{n}" for n in range(50)}
        await asyncio.gather(*(opened(store, name) for name in expected))
        found = [each.thread_id async for each in scan_threads(store, 7)]
        assert set(found) == expected

    async def test_a_scan_tells_what_has_changed_since_it_was_archived(
        self, store: HotTier, thread_id: str
    ) -> None:
        """A message, a commit, a state, another epoch, the end."""
        header = await grown(store, thread_id, LOG)
        assert not await self._is_archived(store, thread_id)
        step = a_step(thread_id, header.head)
        for change in (
            lambda: store.append(step),
            lambda: store.append(replace(step, commits=True)),
            lambda: store.save_slice(thread_id, EPOCH, b"state", 0),
            lambda: store.close_epoch(thread_id, EPOCH),
            lambda: store.install(replace(a_header(thread_id, LOG), epoch=EPOCH + 1), LOG, replace=True),
        ):
            before = await store.read_header(thread_id)
            assert before is not None
            await store.mark_archived(thread_id, before.place)
            assert await self._is_archived(store, thread_id)
            assert await store.read_header(thread_id) == before
            await change()
            assert not await self._is_archived(store, thread_id)

    async def test_a_mark_of_what_has_changed_meanwhile_is_none(self, store: HotTier, thread_id: str) -> None:
        """It says what was archived, not when."""
        before = await grown(store, thread_id, LOG)
        await store.append(a_step(thread_id, before.head))
        await store.mark_archived(thread_id, before.place)
        assert not await self._is_archived(store, thread_id)

    async def test_a_mark_brings_no_thread_back_and_keeps_none(
        self, store: HotTier, thread_id: str, time_to_live: TimeToLive
    ) -> None:
        """What is not here stays away, and what expires goes on to."""
        await store.mark_archived(thread_id, "a place")
        assert await store.read_header(thread_id) is None
        assert [each async for each in scan_threads(store)] == []
        header = await grown(store, thread_id, LOG)
        await store.evict(thread_id, EPOCH, all_of(header), warm_ttl=60)
        await store.mark_archived(thread_id, header.place)
        assert await time_to_live(thread_id) is not None

    @staticmethod
    async def _is_archived(store: HotTier, thread_id: str) -> bool:
        (found,) = [each async for each in scan_threads(store)]
        assert found.thread_id == thread_id
        return found.is_archived

    async def test_a_usable_server_passes_the_check(self, store: HotTier) -> None:
        """The start-up check does not refuse what works."""
        await store.check()
