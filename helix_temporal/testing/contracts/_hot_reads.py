"""Reading: snapshots, pages, what a step needs."""

from itertools import pairwise

import pytest

from helix_temporal.models.stored_messages import EMPTY, Head, StoredMessage, size_of
from helix_temporal.stores.protocols.hot import SINCE_ARCHIVED, HotTier, PageRange
from helix_temporal.testing.builders import a_header, a_step, archived, grown, messages
from helix_temporal.testing.contracts._hot_base import MIB, HotTierFixtures, at

LOG = messages(40, size=93)
"""Forty messages of about a hundred bytes, appended in steps of odd lengths, see `_grown`."""

ONE = size_of(LOG[20:21])


async def _grown(store: HotTier, thread_id: str) -> None:
    cuts = [0, 1, 3, 10, 11, 13, 30, 33, 38, 40]
    await grown(store, thread_id, *(LOG[a:b] for a, b in pairwise(cuts)))


async def _tail(store: HotTier, thread_id: str, base: int) -> None:
    await store.install(a_header(thread_id, LOG[base:], base=at(LOG, base)), LOG[base:], replace=False)


async def _page(store: HotTier, thread_id: str, wanted: PageRange) -> tuple[int, tuple[StoredMessage, ...]]:
    page = await store.read_page(thread_id, wanted)
    assert page is not None
    assert page.header.head.position == 40
    return page.first, page.messages


class PageContract(HotTierFixtures):
    """Pages both ways, by count and by bytes."""

    async def test_an_absent_thread_has_no_pages(self, store: HotTier, thread_id: str) -> None:
        """None is not an empty thread."""
        assert await store.read_page(thread_id, PageRange(0, 1, 1, 1)) is None
        assert await store.read_snapshot(thread_id, 0) is None

    @pytest.mark.parametrize("limit", [1, 2, 7, 100])
    async def test_a_page_goes_forward_by_count(self, store: HotTier, thread_id: str, limit: int) -> None:
        """From any position, however the steps were packed."""
        await _grown(store, thread_id)
        for start in range(0, 40, 3):
            got = await _page(store, thread_id, PageRange(start, 40, limit, MIB))
            assert got == (start, LOG[start : start + limit])

    @pytest.mark.parametrize("limit", [1, 2, 7, 100])
    async def test_a_page_goes_backward_by_count(self, store: HotTier, thread_id: str, limit: int) -> None:
        """The newest before any position, oldest first."""
        await _grown(store, thread_id)
        for stop in range(1, 41, 3):
            first = max(stop - limit, 0)
            got = await _page(store, thread_id, PageRange(0, stop, limit, MIB, backward=True))
            assert got == (first, LOG[first:stop])

    @pytest.mark.parametrize("extra", [-1, 0, 1])
    async def test_a_page_ends_before_its_bytes_would_be_passed(
        self, store: HotTier, thread_id: str, extra: int
    ) -> None:
        """A page fits in what the reader has room for."""
        await _grown(store, thread_id)
        room, count = 5 * ONE + extra, 4 if extra < 0 else 5
        forward = await _page(store, thread_id, PageRange(20, 40, 100, room))
        assert forward == (20, LOG[20 : 20 + count])
        backward = await _page(store, thread_id, PageRange(10, 36, 100, room, backward=True))
        assert backward == (36 - count, LOG[36 - count : 36])

    @pytest.mark.parametrize("backward", [False, True])
    async def test_a_page_holds_at_least_one_message(
        self, store: HotTier, thread_id: str, backward: bool
    ) -> None:
        """A reader always gets on, however large a message is."""
        await _grown(store, thread_id)
        first, messages = await _page(store, thread_id, PageRange(12, 31, 100, 1, backward=backward))
        assert (first, messages) == ((30, LOG[30:31]) if backward else (12, LOG[12:13]))

    @pytest.mark.parametrize("backward", [False, True])
    async def test_a_page_stays_in_its_range(self, store: HotTier, thread_id: str, backward: bool) -> None:
        """Both ends bound it, also inside a step."""
        await _grown(store, thread_id)
        got = await _page(store, thread_id, PageRange(14, 29, 100, MIB, backward=backward))
        assert got == (14, LOG[14:29])

    @pytest.mark.parametrize("backward", [False, True])
    @pytest.mark.parametrize(("start", "stop"), [(40, 50), (10, 10), (0, 3), (60, 70)])
    async def test_an_empty_range_is_an_empty_page(
        self, store: HotTier, thread_id: str, backward: bool, start: int, stop: int
    ) -> None:
        """Nothing there, or nothing held here: no messages, and no error."""
        await _tail(store, thread_id, 5)
        _, messages = await _page(store, thread_id, PageRange(start, stop, 9, MIB, backward=backward))
        assert messages == ()

    @pytest.mark.parametrize("backward", [False, True])
    async def test_a_page_begins_at_the_base(self, store: HotTier, thread_id: str, backward: bool) -> None:
        """Older ones are read from the archive."""
        await _tail(store, thread_id, 5)
        got = await _page(store, thread_id, PageRange(2, 8, 9, MIB, backward=backward))
        assert got == (5, LOG[5:8])

    @pytest.mark.parametrize("since", [0, 1, 2, 12, 39, 40, 99])
    async def test_a_snapshot_holds_all_from_a_position(
        self, store: HotTier, thread_id: str, since: int
    ) -> None:
        """Header and messages of one instant."""
        await _grown(store, thread_id)
        snapshot = await store.read_snapshot(thread_id, since)
        assert snapshot is not None
        assert (snapshot.first, snapshot.messages) == (min(since, 40), LOG[since:])

    async def test_a_snapshot_begins_at_the_base(self, store: HotTier, thread_id: str) -> None:
        """It tells where it begins."""
        await _tail(store, thread_id, 17)
        snapshot = await store.read_snapshot(thread_id, 3)
        assert snapshot is not None
        assert (snapshot.first, snapshot.messages) == (17, LOG[17:])

    async def test_a_snapshot_since_the_archive_includes_the_last_archived_message(
        self, store: HotTier, thread_id: str
    ) -> None:
        """That message shows whether the hot thread continues the archive."""
        await archived(store, await grown(store, thread_id, LOG[:7], LOG[7:20]))
        await store.append(a_step(thread_id, at(LOG, 20), inputs=LOG[20:23]))
        snapshot = await store.read_snapshot(thread_id, SINCE_ARCHIVED)
        assert snapshot is not None
        assert (snapshot.first, snapshot.messages) == (19, LOG[19:23])

    async def test_a_snapshot_since_the_archive_holds_all_of_a_thread_never_archived(
        self, store: HotTier, thread_id: str
    ) -> None:
        """The first flush takes everything."""
        await _grown(store, thread_id)
        snapshot = await store.read_snapshot(thread_id, SINCE_ARCHIVED)
        assert snapshot is not None
        assert (snapshot.first, snapshot.messages) == (0, LOG)


class StepViewContract(HotTierFixtures):
    """What a step reads before it calls the model."""

    async def test_an_absent_thread_has_no_view(self, store: HotTier, thread_id: str) -> None:
        """The step hydrates it then."""
        assert await store.step_view(thread_id, EMPTY, after=1, limit=1, max_bytes=1, ids=1) is None

    @pytest.mark.parametrize(("limit", "ids"), [(1, 0), (5, 3), (6, 20), (100, 200)])
    async def test_a_view_is_a_window_around_the_head(
        self, store: HotTier, thread_id: str, limit: int, ids: int
    ) -> None:
        """The step if it stands, the newest before it, and ids to recognise older inputs."""
        await _grown(store, thread_id)
        for position in range(0, 41, 4):
            view = await store.step_view(
                thread_id, at(LOG, position), after=3, limit=limit, max_bytes=MIB, ids=ids
            )
            assert view is not None
            first = max(position - limit, 0)
            earliest = max(min(first, position - ids), 0)
            assert view.header == await store.read_header(thread_id)
            assert view.after == LOG[position : position + 3]
            assert view.before == LOG[first:position]
            assert view.earlier_ids == tuple(message.id for message in LOG[earliest:first])
            assert view.last_id_at_head == at(LOG, position).last_id

    async def test_a_window_is_bounded_by_bytes(self, store: HotTier, thread_id: str) -> None:
        """A model's context has a size; the ids still go further back."""
        await _grown(store, thread_id)
        view = await store.step_view(thread_id, at(LOG, 35), after=0, limit=100, max_bytes=3 * ONE, ids=6)
        assert view is not None
        assert view.after == ()
        assert view.before == LOG[32:35]
        assert view.earlier_ids == ("m29", "m30", "m31")

    async def test_a_window_holds_at_least_one_message(self, store: HotTier, thread_id: str) -> None:
        """Even one that is too large."""
        await _grown(store, thread_id)
        view = await store.step_view(thread_id, at(LOG, 40), after=2, limit=9, max_bytes=1, ids=2)
        assert view is not None
        assert (view.before, view.earlier_ids, view.after) == (LOG[39:], ("m38",), ())

    async def test_a_view_ends_at_the_base(self, store: HotTier, thread_id: str) -> None:
        """Fewer ids and messages where the hot part begins."""
        await _tail(store, thread_id, 20)
        view = await store.step_view(thread_id, at(LOG, 25), after=1, limit=2, max_bytes=MIB, ids=200)
        assert view is not None
        assert (view.after, view.before) == (LOG[25:26], LOG[23:25])
        assert view.earlier_ids == ("m20", "m21", "m22")

    async def test_the_message_before_the_base_is_known(self, store: HotTier, thread_id: str) -> None:
        """A step may stand right at the base."""
        await _tail(store, thread_id, 20)
        view = await store.step_view(thread_id, at(LOG, 20), after=2, limit=9, max_bytes=MIB, ids=9)
        assert view is not None
        assert (view.after, view.before, view.earlier_ids) == (LOG[20:22], (), ())
        assert view.last_id_at_head == "m19"

    @pytest.mark.parametrize("position", [3, 41])
    async def test_a_head_that_is_not_held_has_no_last_id(
        self, store: HotTier, thread_id: str, position: int
    ) -> None:
        """Before the base or beyond the thread: the step cannot stand there."""
        await _tail(store, thread_id, 20)
        head = Head(position=position, last_id="m2")
        view = await store.step_view(thread_id, head, after=2, limit=9, max_bytes=MIB, ids=9)
        assert view is not None
        assert (view.after, view.last_id_at_head) == ((), None)
