"""Large messages, which a backend may keep apart from small ones."""

from dataclasses import replace

import pytest

from helix_temporal.errors import HeadMovedError, IdempotencyConflictError
from helix_temporal.models.stored_messages import Kind, StoredMessage, size_of
from helix_temporal.stores.protocols.hot import HotTier, PageRange, Rebase
from helix_temporal.testing.builders import EPOCH, a_header, a_step, grown
from helix_temporal.testing.contracts._hot_base import MIB, HotTierFixtures, at, stored

KINDS = (Kind.USER, Kind.CALLS, Kind.RESULT, Kind.ANSWER)
SIZES = (3, 5_000, 70_000, 300_000, 0, 9_000)
LOG = tuple(StoredMessage(KINDS[n % 4], f"m{n}", bytes([n]) * SIZES[n % 6]) for n in range(24))


class LargeContract(HotTierFixtures):
    """Small and large messages side by side, in steps of four."""

    @pytest.fixture
    async def thread(self, store: HotTier, thread_id: str) -> str:
        """A thread with all of them."""
        await grown(store, thread_id, *(LOG[n : n + 4] for n in range(0, 24, 4)))
        return thread_id

    async def test_all_are_read_as_they_were_written(self, store: HotTier, thread: str) -> None:
        """From appends and from an installation."""
        assert await stored(store, thread) == LOG
        await store.drop(thread, EPOCH)
        made = await store.install(a_header(thread, LOG), LOG, replace=False)
        assert (made.size, await stored(store, thread)) == (size_of(LOG), LOG)

    @pytest.mark.parametrize("backward", [False, True])
    @pytest.mark.parametrize("start", [0, 1, 5])
    async def test_pages_are_bounded_by_true_sizes(
        self, store: HotTier, thread: str, start: int, backward: bool
    ) -> None:
        """A page that is too large would not pass through where it is read."""
        wanted = PageRange(start, 23, limit=99, max_bytes=400_000, backward=backward)
        page = await store.read_page(thread, wanted)
        assert page is not None
        stop = page.first + len(page.messages)
        beyond = LOG[page.first - 1 : stop] if backward else LOG[page.first : stop + 1]
        assert page.messages == LOG[page.first : stop]
        assert size_of(page.messages) <= 400_000 < size_of(beyond)

    @pytest.mark.parametrize("position", [1, 2, 3, 4, 7, 22])
    async def test_a_step_sees_its_window_and_its_ids(
        self, store: HotTier, thread: str, position: int
    ) -> None:
        """Whatever the messages before it weigh."""
        view = await store.step_view(thread, at(LOG, position), after=2, limit=3, max_bytes=MIB, ids=99)
        assert view is not None
        first = max(position - 3, 0)
        assert (view.before, view.after) == (LOG[first:position], LOG[position : position + 2])
        assert view.earlier_ids == tuple(message.id for message in LOG[:first])
        assert view.last_id_at_head == LOG[position - 1].id

    @pytest.mark.parametrize("start", [0, 8, 20])
    async def test_a_repeated_step_finds_itself(self, store: HotTier, thread: str, start: int) -> None:
        """With another attempt's answer, the first one is returned."""
        other = replace_body(LOG[start + 3], b"another" * 2_000)
        step = a_step(thread, at(LOG, start), inputs=LOG[start : start + 3], answer=other)
        appended = await store.append(step)
        assert appended is not None
        assert (appended.messages, appended.repeated) == (LOG[start : start + 4], True)

    @pytest.mark.parametrize("which", [1, 2])
    async def test_the_same_ids_with_another_byte_are_refused(
        self, store: HotTier, thread: str, which: int
    ) -> None:
        """Also where only the last byte of a large message is another."""
        inputs = list(LOG[:3])
        inputs[which] = replace_body(inputs[which], inputs[which].body[:-1] + b"?")
        with pytest.raises(IdempotencyConflictError):
            await store.append(a_step(thread, at(LOG, 0), inputs=inputs, answer=LOG[3]))
        assert await stored(store, thread) == LOG

    async def test_another_id_with_the_same_large_content_is_refused(
        self, store: HotTier, thread: str
    ) -> None:
        """It is another message."""
        inputs = (LOG[0], LOG[1]._replace(id="n1"), LOG[2])
        with pytest.raises(HeadMovedError):
            await store.append(a_step(thread, at(LOG, 0), inputs=inputs, answer=LOG[3]))

    @pytest.mark.parametrize("keep", [0, 1, 2, 6, 7, 9, 24])
    async def test_they_are_cut_anywhere(self, store: HotTier, thread: str, keep: int) -> None:
        """And others take their places."""
        header = await store.read_header(thread)
        assert header is not None
        new = (StoredMessage(Kind.USER, "new", b"!" * 6_000),)
        messages = (*LOG[:keep], *new)
        after = replace(a_header(thread, messages), epoch=EPOCH + 1)
        made = await store.rebase(Rebase((EPOCH, header.head), after, keep, new))
        assert made == await store.read_header(thread)
        assert await stored(store, thread) == messages

    @pytest.mark.parametrize("keep_from", [1, 2, 6, 7, 9, 24])
    async def test_they_are_forgotten_anywhere(self, store: HotTier, thread: str, keep_from: int) -> None:
        """And the bytes of what is held stay known."""
        trimmed = await store.trim(thread, EPOCH, at(LOG, 24), keep_from)
        assert trimmed is not None
        assert trimmed.base_size == size_of(LOG[:keep_from])
        assert await stored(store, thread) == LOG[keep_from:]


def replace_body(message: StoredMessage, body: bytes) -> StoredMessage:
    """The same message with other content."""
    return message._replace(body=body)
