"""Becoming hot: whole, and never over something newer."""

import asyncio
from dataclasses import replace

import pytest

from helix_temporal.errors import FencedError, InvalidRequestError
from helix_temporal.models.stored_messages import EMPTY, Head, StoredMessage, head_after, size_of
from helix_temporal.stores.protocols.hot import HotTier
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


class InstallContract(HotTierFixtures):
    """Becoming hot: whole, and never over something newer."""

    async def test_an_absent_thread_becomes_hot(self, store: HotTier, thread_id: str) -> None:
        """Header and messages as the archive has them."""
        header = replace(
            a_header(thread_id, LOG), committed=29, archived=30, archived_size=size_of(LOG), slice=b"{}"
        )
        assert await store.install(header, LOG, replace=False) == header
        assert await store.read_header(thread_id) == header
        assert await stored(store, thread_id) == LOG

    async def test_a_hot_thread_is_never_touched(self, store: HotTier, thread_id: str) -> None:
        """A late hydration would otherwise lose what was appended since."""
        await grown(store, thread_id, LOG[:4])
        before = await image(store, thread_id)
        newer = replace(a_header(thread_id, LOG), epoch=EPOCH + 1)
        there = await store.install(newer, LOG, replace=False)
        assert there == await store.read_header(thread_id)
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
        assert set(made) == {await store.read_header(thread_id)}
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
    async def test_a_thread_that_continues_the_archive_is_kept(
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
    async def test_a_thread_that_does_not_continue_the_archive_is_replaced(
        self, store: HotTier, thread_id: str, archive: tuple[StoredMessage, ...]
    ) -> None:
        """A store that was rolled back is mended from the archive."""
        await grown(store, thread_id, LOG[:3], LOG[3:8])
        made = await store.install(a_header(thread_id, archive), archive, replace=True)
        assert made.head == head_after(EMPTY, archive)
        assert await stored(store, thread_id) == archive

    async def test_a_thread_that_continues_right_at_its_base_is_kept(
        self, store: HotTier, thread_id: str
    ) -> None:
        """It knows the id of the message before the base."""
        await store.install(a_header(thread_id, LOG[10:], base=at(LOG, 10)), LOG[10:], replace=False)
        before = await image(store, thread_id)
        await store.install(a_header(thread_id, LOG[:10]), LOG[:10], replace=True)
        assert await image(store, thread_id) == before

    async def test_a_thread_that_begins_beyond_an_install_is_kept(
        self, store: HotTier, thread_id: str
    ) -> None:
        """An install that was held up on its way must not take back what came after it."""
        await store.install(a_header(thread_id, LOG[10:], base=at(LOG, 10)), LOG[10:], replace=False)
        before = await image(store, thread_id)
        await store.install(a_header(thread_id, LOG[:9]), LOG[:9], replace=True)
        assert await image(store, thread_id) == before

    async def test_a_closed_epoch_stays_closed(self, store: HotTier, thread_id: str) -> None:
        """Mending the hot thread must not let late attempts in again."""
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
                there = await store.read_header(thread_id)
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
        assert set(made) == {await store.read_header(thread_id)}
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
    async def test_messages_that_do_not_lead_to_the_head_are_refused(
        self, store: HotTier, thread_id: str, head: Head
    ) -> None:
        """A damaged copy never becomes hot."""
        with pytest.raises(InvalidRequestError):
            await store.install(replace(a_header(thread_id, LOG), head=head), LOG, replace=False)
        assert await store.read_header(thread_id) is None
