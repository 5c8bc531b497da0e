"""Epochs: who may write, and the slice under them."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from helix_temporal.errors import FencedError, HeadMovedError, StaleStateError
from helix_temporal.models.stored_messages import Head
from helix_temporal.stores.protocols.hot import HotTier, Rebase
from helix_temporal.testing.builders import EPOCH, a_header, a_step, grown, messages, opened
from helix_temporal.testing.contracts._hot_base import HotTierFixtures, image

Write = Callable[[HotTier, str, int], Awaitable[object]]


def _append(store: HotTier, thread_id: str, epoch: int) -> Awaitable[object]:
    return store.append(a_step(thread_id, epoch=epoch))


def _continue(store: HotTier, thread_id: str, epoch: int) -> Awaitable[object]:
    head = Head(position=2, last_id=messages(2)[-1].id)
    return store.append(a_step(thread_id, head, epoch=epoch))


def _repeat(store: HotTier, thread_id: str, epoch: int) -> Awaitable[object]:
    return store.append(a_step(thread_id, inputs=messages(2), epoch=epoch))


def _save(store: HotTier, thread_id: str, epoch: int) -> Awaitable[object]:
    return store.save_slice(thread_id, epoch, b"x", 0)


WRITES = [
    pytest.param(_append, id="append"),
    pytest.param(_continue, id="append at the head"),
    pytest.param(_repeat, id="repeat"),
    pytest.param(_save, id="save_slice"),
]


class FenceContract(HotTierFixtures):
    """The epoch shuts out everyone but the one who opened last."""

    @pytest.mark.parametrize("write", WRITES)
    async def test_an_old_epoch_is_fenced(self, store: HotTier, thread_id: str, write: Write) -> None:
        """A zombie of an earlier execution changes nothing, not even by repeating its own step."""
        await grown(store, thread_id, messages(2))
        before = await image(store, thread_id)
        with pytest.raises(FencedError):
            await write(store, thread_id, EPOCH - 1)
        assert await image(store, thread_id) == before

    @pytest.mark.parametrize("write", WRITES)
    async def test_a_thread_older_than_the_open_is_refused(
        self, store: HotTier, thread_id: str, write: Write
    ) -> None:
        """A hot thread that was rolled back to before the caller's open is not what it opened."""
        await grown(store, thread_id, messages(2))
        before = await image(store, thread_id)
        with pytest.raises(HeadMovedError):
            await write(store, thread_id, EPOCH + 1)
        assert await image(store, thread_id) == before

    @pytest.mark.parametrize("write", WRITES)
    async def test_a_closed_epoch_is_fenced(self, store: HotTier, thread_id: str, write: Write) -> None:
        """A step that outlives its session's end comes too late."""
        await grown(store, thread_id, messages(2))
        await store.close_epoch(thread_id, EPOCH)
        before = await image(store, thread_id)
        with pytest.raises(FencedError):
            await write(store, thread_id, EPOCH)
        assert await image(store, thread_id) == before

    @pytest.mark.parametrize("write", WRITES)
    async def test_a_tombstone_is_fenced(self, store: HotTier, thread_id: str, write: Write) -> None:
        """A deleted thread does not come back by a late write."""
        await opened(store, thread_id, replace(a_header(thread_id), deleted=True))
        with pytest.raises(FencedError):
            await write(store, thread_id, EPOCH)

    @pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH + 1])
    async def test_closing_another_epoch_does_nothing(
        self, store: HotTier, thread_id: str, epoch: int
    ) -> None:
        """A finaliser that comes late must not shut out its successor."""
        header = await opened(store, thread_id)
        await store.close_epoch(thread_id, epoch)
        assert await store.read_header(thread_id) == header

    async def test_closing_an_absent_thread_does_nothing(self, store: HotTier, thread_id: str) -> None:
        """Nothing is created by it."""
        await store.close_epoch(thread_id, EPOCH)
        assert await store.read_header(thread_id) is None

    async def test_a_closed_epoch_is_opened_by_a_higher_one(self, store: HotTier, thread_id: str) -> None:
        """Closing ends an epoch, not the thread."""
        header = await opened(store, thread_id)
        await store.close_epoch(thread_id, EPOCH)
        await store.rebase(Rebase((EPOCH, header.head), replace(header, epoch=EPOCH + 1), keep=0))
        done = await store.append(a_step(thread_id, epoch=EPOCH + 1))
        assert done is not None


class SliceContract(HotTierFixtures):
    """The state stored with a thread."""

    async def test_a_slice_is_saved(self, store: HotTier, thread_id: str) -> None:
        """Opaque bytes, read back with the header."""
        await opened(store, thread_id)
        assert await store.save_slice(thread_id, EPOCH, b"\x00{}\n\xff", 0) == 1
        header = await store.read_header(thread_id)
        assert header is not None
        assert (header.slice, header.slice_version) == (b"\x00{}\n\xff", 1)

    async def test_a_repeated_save_returns_the_first_answer(self, store: HotTier, thread_id: str) -> None:
        """A retried save is one save."""
        await opened(store, thread_id)
        await store.save_slice(thread_id, EPOCH, b"x", 0)
        assert await store.save_slice(thread_id, EPOCH, b"x", 0) == 1

    @pytest.mark.parametrize("version", [0, 2])
    async def test_a_save_against_another_version_is_refused(
        self, store: HotTier, thread_id: str, version: int
    ) -> None:
        """No last writer wins."""
        await opened(store, thread_id)
        await store.save_slice(thread_id, EPOCH, b"x", 0)
        before = await image(store, thread_id)
        with pytest.raises(StaleStateError):
            await store.save_slice(thread_id, EPOCH, b"y", version)
        assert await image(store, thread_id) == before

    async def test_saving_to_an_absent_thread_is_none(self, store: HotTier, thread_id: str) -> None:
        """The caller hydrates and comes again."""
        assert await store.save_slice(thread_id, EPOCH, b"x", 0) is None
        assert await store.read_header(thread_id) is None
