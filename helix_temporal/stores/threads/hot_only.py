"""A thread store over a hot tier alone, without an archive: `HotThreads`.

What a fork answered is kept with the thread that it made, so that a repeat answers the same.
"""
# ruff: noqa: ARG002 (half of the protocol has nothing to do here)

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Self, TypeVar

from pydantic import TypeAdapter, ValidationError

from helix_temporal.errors import (
    FencedError,
    StoreUnavailableError,
    ThreadExistsError,
)
from helix_temporal.models.stored_messages import EMPTY, Head, StoredMessage, head_after, size_of
from helix_temporal.models.turns import check_split
from helix_temporal.stores.paging import Bounds, Stretch, check_page, finish_page
from helix_temporal.stores.protocols.hot import (
    NEVER_ARCHIVED,
    Appended,
    Archived,
    Eviction,
    HotHeader,
    HotSnapshot,
    HotTier,
    PageRange,
    Rebase,
    StepAppend,
    StepView,
)
from helix_temporal.stores.protocols.threads import (
    Create,
    FlushReceipt,
    FlushStatus,
    FlushThread,
    ForkedThread,
    ForkThread,
    OpenedThread,
    OpenThread,
    Progress,
    ReadPage,
    ThreadFacts,
    ThreadPage,
    Transform,
    no_progress,
)
from helix_temporal.stores.threads.fences import Fence
from helix_temporal.stores.threads.opening import (
    OpenPlaces,
    check_adapter,
    check_existence,
    check_expected_head,
    fork_position,
    thread_not_found_error,
)
from helix_temporal.telemetry import metrics

_ANSWER: Final = TypeAdapter(ForkedThread)


def origin_of(forked: ForkedThread) -> str:
    """What the new thread remembers of the fork that makes it."""
    return _ANSWER.dump_json(forked).decode()


def made_as(origin: str) -> ForkedThread | None:
    """The fork that made a thread; None if none did."""
    try:
        return _ANSWER.validate_json(origin)
    except ValidationError:
        return None


def first_answer(request: ForkThread, origin: str) -> ForkedThread:
    """What the first attempt of this very fork answered.

    Raises:
        ThreadExistsError: The thread was made by something else.
    """
    exists = ThreadExistsError(f"thread {request.target_id!r} exists; fork into another id")
    forked = made_as(origin)
    if forked is None:
        raise exists
    wanted = (request.source_id, request.target_id, request.epoch, request.owner)
    if (forked.source_id, forked.thread_id, forked.epoch, forked.owner) != wanted:
        raise exists
    return forked


T = TypeVar("T")

TRIES: Final = 60
_ANY_POSITION: Final = 2**53 - 1
"""Beyond each thread's end; Lua counts that far exactly."""
NO_COLD_TIER: Final = "no_cold_tier"


class HotThreads:
    """A `ThreadStore` over a hot tier, without an archive.

    Args:
        expire_after: Seconds after which a thread that was evicted is lost, unless it is used again;
            None keeps all threads for ever.
        backend: Names the hot tier in metrics.
    """

    archives: bool = False

    def __init__(
        self, hot: HotTier, *, expire_after: float | None = None, backend: str = metrics.OTHER
    ) -> None:
        self.hot, self._expire_after, self._backend = hot, expire_after, backend

    def with_hot(self, wrap: Callable[[HotTier], HotTier]) -> Self:
        """The same threads, by the hot tier that ``wrap`` makes of theirs."""
        wrapped = copy.copy(self)
        wrapped.hot = wrap(self.hot)
        return wrapped

    async def open(self, request: OpenThread, progress: Progress = no_progress) -> OpenedThread:
        """As `ThreadStore.open`."""
        header = await self._open_thread(request)
        return OpenedThread(
            header,
            created=header.born == header.epoch,
            cut=header.cut,
            at=await self._find_open_head(request, header),
        )

    async def _find_open_head(self, request: OpenThread, header: HotHeader) -> Head:
        if request.reopen is None or request.rewind_to is not None:
            if header.head.position == header.committed:
                return header.head
            request = replace(request, reopen=None, rewind_to=None)
        snapshot = await self._read_snapshot(request)
        return header.head if snapshot is None else await _places(request, snapshot).find_head_again()

    async def _open_thread(self, request: OpenThread, origin: str = "") -> HotHeader:
        for _ in range(TRIES):
            snapshot = await self._read_snapshot(request)
            header = snapshot.header if snapshot else None
            if header is not None and Fence.of(header).is_repeated_open(request):
                return header
            changed = await self.hot.rebase(await self._build_rebase(request, snapshot, origin))
            if changed is not None:
                return changed
        raise StoreUnavailableError(f"thread {request.thread_id!r}: not opened in {TRIES} tries")

    async def _read_snapshot(self, request: OpenThread) -> HotSnapshot | None:
        """All that an open has to look at: what it names, and what it may have to cut."""
        since = _lowest_position(request)
        snapshot = await self.hot.read_snapshot(request.thread_id, since)
        if snapshot is None or snapshot.first < max(snapshot.header.committed, 1):
            return snapshot
        return await self.hot.read_snapshot(request.thread_id, 0)

    async def _build_rebase(self, request: OpenThread, snapshot: HotSnapshot | None, origin: str) -> Rebase:
        old = snapshot.header if snapshot else None
        exists = old is not None and not old.deleted
        # A deletion leaves a mark: where the owner finds neither hot thread nor mark, the store lost it.
        is_lost = old is None and request.reopen is not None and request.reopen.known_head is not None
        if not is_lost:
            check_existence(request, exists=exists)
        expected = (old.epoch, old.head) if old else None
        if snapshot is None or not exists:
            check_expected_head(request, EMPTY)
            new = HotHeader(
                request.thread_id,
                request.epoch,
                request.owner,
                slice=request.slice,
                slice_version=1 if request.slice else 0,
                adapter=request.adapter or request.begun_with,
                born=request.epoch,
                origin=origin,
            )
            return _with_messages(Rebase(expected, new, keep=0), request.messages, EMPTY, 0)
        Fence.of(snapshot.header).check_same_owner(request)
        check_adapter(request, snapshot.header.adapter)
        return await self._rebase_existing(request, snapshot, expected)

    async def _rebase_existing(
        self, request: OpenThread, snapshot: HotSnapshot, expected: tuple[int, Head] | None
    ) -> Rebase:
        old = snapshot.header
        cut = (await _places(request, snapshot).find_place()).cut
        size = old.size - size_of(snapshot.messages[max(0, cut.position - snapshot.first) :])
        new = replace(
            old,
            epoch=request.epoch,
            owner=request.owner,
            closed=False,
            head=cut,
            committed=min(old.committed, cut.position),
            cut=old.head.position - cut.position,
            size=size,
            archived=NEVER_ARCHIVED,
        )
        if request.rewrites is not None:
            data = request.rewrites(old.slice, cut, old.born)
            if data != old.slice:
                new = replace(new, slice=data, slice_version=old.slice_version + 1)
        return _with_messages(Rebase(expected, new, keep=cut.position), request.messages, cut, size)

    async def append(self, step: StepAppend) -> Appended:
        """As `ThreadStore.append`."""
        began = time.monotonic()
        appended = _require_found(step.thread_id, await self.hot.append(step))
        metrics.APPEND_DURATION.record_since(began, backend=self._backend)
        return appended

    async def step_view(
        self, thread_id: str, epoch: int, head: Head, *, after: int, limit: int, max_bytes: int, ids: int
    ) -> StepView:
        """As `ThreadStore.step_view`."""
        view = _require_found(
            thread_id,
            await self.hot.step_view(thread_id, head, after=after, limit=limit, max_bytes=max_bytes, ids=ids),
        )
        Fence.of(view.header).check_writer(epoch)
        return view

    async def read(self, request: ReadPage) -> ThreadPage:
        """As `ThreadStore.read`."""
        check_page(request)

        async def read(start: int, stop: int, limit: int, max_bytes: int, backward: bool) -> HotSnapshot:
            wanted = PageRange(start, stop, limit, max_bytes, backward)
            return _require_found(request.thread_id, await self.hot.read_page(request.thread_id, wanted))

        async def fetch(start: int, stop: int, limit: int, max_bytes: int, backward: bool) -> Stretch:
            page = await read(start, stop, limit, max_bytes, backward)
            return page.first, page.messages

        asked = _ANY_POSITION if request.stop is None else request.stop
        page = await read(request.start, asked, request.limit, request.max_bytes, request.backward)
        header = page.header
        if header.deleted:
            raise thread_not_found_error(request.thread_id)
        bounds = Bounds.of(request, header.head.position, header.committed)
        found = None
        if not request.backward or bounds.stop == min(asked, header.head.position):
            # Else its end is that of the committed messages, which only the header tells: read again.
            first = min(page.first, bounds.stop)
            found = first, page.messages[: max(bounds.stop - first, 0)]
        return await finish_page(request, bounds, fetch, header.head, header.committed, found)

    async def read_facts(self, thread_id: str) -> ThreadFacts:
        """As `ThreadStore.read_facts`."""
        return ThreadFacts.of_hot(await self._read_header(thread_id), NEVER_ARCHIVED)

    async def read_hot_header(self, thread_id: str) -> HotHeader | None:
        """As `ThreadStore.read_hot_header`."""
        return await self.hot.read_header(thread_id)

    async def _read_header(self, thread_id: str) -> HotHeader:
        header = _require_found(thread_id, await self.hot.read_header(thread_id))
        if header.deleted:
            raise thread_not_found_error(thread_id)
        return header

    async def fork(
        self, request: ForkThread, transform: Transform | None = None, progress: Progress = no_progress
    ) -> ForkedThread:
        """As `ThreadStore.fork`; every message passes through this process."""
        made = await self._find_earlier_fork(request)
        if made is not None:
            return made
        source = _require_found(request.source_id, await self.hot.read_snapshot(request.source_id, 0))
        if source.header.deleted:
            raise thread_not_found_error(request.source_id)
        messages = source.messages[: _fork_cut(request, source)]
        progress("read", 0, size_of(messages))
        if transform is not None:
            messages = tuple(await transform(messages))
        new = OpenThread(
            request.target_id,
            request.epoch,
            request.owner,
            Create.NEW,
            messages=messages,
            slice=source.header.slice if request.slice is None else request.slice,
            adapter=source.header.adapter,
        )
        try:
            opened = await self._open_thread(new, origin_of(_fork_answer(request, new)))
        except (FencedError, ThreadExistsError):
            # Another attempt of this fork was first, and its thread has been opened since.
            made = await self._find_earlier_fork(request)
            if made is None:
                raise
            return made
        return first_answer(request, opened.origin)

    async def _find_earlier_fork(self, request: ForkThread) -> ForkedThread | None:
        """What an earlier attempt of this fork answered, None if there was none."""
        made = await self.hot.read_header(request.target_id)
        return None if made is None or made.deleted else first_answer(request, made.origin)

    async def save_slice(self, thread_id: str, epoch: int, data: bytes, expected_version: int) -> int:
        """As `ThreadStore.save_slice`."""
        return _require_found(thread_id, await self.hot.save_slice(thread_id, epoch, data, expected_version))

    async def delete(self, thread_id: str, epoch: int) -> None:
        """As `ThreadStore.delete`: a header without messages stays and remembers the epoch."""
        for _ in range(TRIES):
            old = await self.hot.read_header(thread_id)
            if old is None or old.deleted:
                return
            Fence.of(old).check_not_replaced(epoch)
            tombstone = HotHeader(thread_id, epoch, old.owner, closed=True, deleted=True)
            if await self.hot.rebase(Rebase((old.epoch, old.head), tombstone, keep=0)) is not None:
                return
        raise StoreUnavailableError(f"thread {thread_id!r}: not deleted in {TRIES} tries")

    async def hydrate(self, thread_id: str, epoch: int, progress: Progress = no_progress) -> HotHeader | None:
        """There is nothing to take it from."""
        return None

    async def flush(self, request: FlushThread, progress: Progress = no_progress) -> FlushReceipt:
        """There is nowhere to archive to; ``closes`` still takes effect where the execution ``ends`` so."""
        if not request.closes:
            return FlushReceipt(FlushStatus.NO_COLD_TIER, reason=NO_COLD_TIER)
        if request.ends:
            await self.hot.close_epoch(request.thread_id, request.epoch)
        header = await self.hot.read_header(request.thread_id)
        committed = 0 if header is None or header.deleted else header.committed
        return FlushReceipt(FlushStatus.NO_COLD_TIER, committed=committed, reason=NO_COLD_TIER)

    async def archive_step(self, step: StepAppend, appended: Appended) -> FlushReceipt:
        """There is nowhere to archive to."""
        return FlushReceipt(FlushStatus.NO_COLD_TIER, reason=NO_COLD_TIER)

    async def confirm_step(self, step: StepAppend, appended: Appended) -> None:
        """The hot thread is all there is."""

    async def confirm_standing(self, thread_id: str, epoch: int, head: Head) -> None:
        """The hot thread is all there is."""

    async def confirm_head(self, thread_id: str, epoch: int, head: Head) -> None:
        """The hot thread is all there is."""

    async def evict(self, thread_id: str, epoch: int) -> str:
        """The hot thread is all there is: it stays, or expires if it was agreed that it may."""
        if self._expire_after is None:
            return NO_COLD_TIER
        header = await self.hot.read_header(thread_id)
        if header is None:
            return Eviction.ABSENT
        whole = Archived(header.head, header.committed, header.slice_version, header.size)
        return await self.hot.evict(thread_id, epoch, whole, warm_ttl=self._expire_after)


def _lowest_position(request: OpenThread) -> int:
    """The lowest position whose message an open may have to look at."""
    if request.rewind_to is not None:
        return max(0, request.rewind_to.position - 1)
    return 0 if request.reopen is None else max(0, request.reopen.turn_start.position - 1)


def _places(request: OpenThread, snapshot: HotSnapshot) -> OpenPlaces:
    return OpenPlaces(request, _HotStanding(snapshot))


class _HotStanding:
    """As `StandingThread`: a thread in the hot tier alone."""

    def __init__(self, snapshot: HotSnapshot) -> None:
        self._snapshot, header = snapshot, snapshot.header
        self.head, self.committed, self.is_ended = header.head, header.committed, header.closed

    async def id_before(self, position: int) -> str | None:
        """As `StandingThread.id_before`."""
        return self._snapshot.id_before(position)

    async def read_slice(self) -> bytes:
        """As `StandingThread.read_slice`."""
        return self._snapshot.header.slice

    async def read_messages(self, start: int, stop: int) -> Sequence[StoredMessage]:
        """As `StandingThread.read_messages`."""
        first = self._snapshot.first
        return self._snapshot.messages[max(start - first, 0) : max(stop - first, 0)]


def _with_messages(change: Rebase, messages: tuple[StoredMessage, ...], after: Head, size: int) -> Rebase:
    if not messages:
        return change
    end = head_after(after, messages)
    header = replace(change.header, head=end, committed=end.position, size=size + size_of(messages))
    return replace(change, header=header, messages=messages)


def _fork_answer(request: ForkThread, new: OpenThread) -> ForkedThread:
    return ForkedThread(
        request.source_id, new.thread_id, new.epoch, new.owner, head_after(EMPTY, new.messages),
        NEVER_ARCHIVED, 1 if new.slice else 0, new.adapter, size_of(new.messages),
    )  # fmt: skip


def _fork_cut(request: ForkThread, source: HotSnapshot) -> int:
    committed = source.header.committed
    cut = fork_position(request, committed)
    before = source.messages[cut - 1].kind if cut else None
    after = source.messages[cut].kind if cut < committed else None
    check_split(f"thread {request.source_id!r}", cut, before, after)
    return cut


def _require_found(thread_id: str, found: T | None) -> T:
    if found is None:
        raise thread_not_found_error(thread_id)
    return found
