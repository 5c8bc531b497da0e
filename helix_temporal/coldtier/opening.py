"""Open and hydrate: take the epoch in the manifest, then make the hot thread a copy of it."""

import asyncio
import contextlib
import logging
import weakref
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from helix_temporal.coldtier.archive import (
    UNBOUNDED,
    Archive,
    Stored,
    Traffic,
    UnansweredWriteError,
    retry_on_change,
)
from helix_temporal.coldtier.flush import Backlog, Flushing
from helix_temporal.coldtier.format import Legacy, Manifest
from helix_temporal.coldtier.liveness import (
    check_regressed,
    continues_archive,
    is_alive,
    is_hot_thread_to_come,
)
from helix_temporal.coldtier.plan import (
    TAIL_MESSAGES,
    CommitPlan,
    hot_messages_from,
    plan_commit,
    tail_start,
    whole_log,
)
from helix_temporal.coldtier.zeitlich import LegacySnapshot, LegacySource
from helix_temporal.errors import (
    ConflictError,
    FencedError,
    StoreCorruptError,
    ThreadNotFoundError,
)
from helix_temporal.models.stored_messages import EMPTY, Head, StoredMessage
from helix_temporal.stores.protocols.hot import (
    SINCE_ARCHIVED,
    Appended,
    Archived,
    Eviction,
    HotHeader,
    HotSnapshot,
    HotTier,
    PageRange,
    Rebase,
    ScannedPage,
    StepAppend,
    StepView,
)
from helix_temporal.stores.protocols.threads import (
    FlushThread,
    OpenedThread,
    OpenThread,
    Progress,
    no_progress,
)
from helix_temporal.stores.threads.fences import Fence
from helix_temporal.stores.threads.opening import OpenPlaces, check_adapter, check_existence


def check_open(
    request: OpenThread, hot: HotHeader | None, archive: Manifest, *, legacy: bool = False
) -> bool:
    """Whether the archive already shows this open's success; False if it is still to be committed.

    ``legacy``: there is a version 1 snapshot to go on from.

    Raises:
        FencedError, ThreadExistsError, ThreadNotFoundError, InvalidRequestError: As `ThreadStore.open`.
    """
    if hot is not None:
        # That it has the hot thread is not success yet: the archive's swap is.
        Fence.of(hot).is_repeated_open(request)
    if Fence.of(archive).is_repeated_open(request):
        return True
    alive = hot if is_alive(hot, archive) else None
    # Who opens again had it open in this format: an old snapshot can't be what it knew.
    legacy = legacy and request.reopen is None
    check_existence(request, exists=not archive.is_absent or alive is not None or legacy)
    if not archive.is_absent:
        Fence.of(archive).check_same_owner(request)
        check_adapter(request, archive.adapter)
    elif alive is not None:
        Fence.of(alive).check_same_owner(request)
        check_adapter(request, alive.adapter)
    return False


TAIL_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class OpenBase:
    """What an open goes on from: the archive, and behind it what hot had beyond (if hot continues it)."""

    archive: Manifest
    extra: tuple[StoredMessage, ...]
    committed: int
    head: Head
    hot: HotHeader | None = None
    legacy: Legacy | None = None
    slice: bytes = b""
    slice_version: int = 0
    adapter: str = ""


class _TieredStanding:
    """As `StandingThread`: a thread in its archive, and behind it what the hot thread had beyond."""

    def __init__(self, archive: Archive, base: OpenBase) -> None:
        self._archive, self._base = archive, base
        self.head, self.committed, self.is_ended = base.head, base.committed, base.archive.ended

    async def id_before(self, position: int) -> str | None:
        """As `StandingThread.id_before`."""
        archive, extra = self._base.archive, self._base.extra
        if archive.end < position <= archive.end + len(extra):
            return extra[position - 1 - archive.end].id
        if archive.is_absent:
            return "" if position == 0 else None
        return await self._archive.id_before(archive, position)

    async def read_slice(self) -> bytes:
        """As `StandingThread.read_slice`, wherever it is."""
        base = self._base
        if base.slice_version == base.archive.slice_version and not base.archive.is_absent:
            return await self._archive.read_slice(base.archive)
        return base.slice

    async def read_messages(self, start: int, stop: int) -> Sequence[StoredMessage]:
        """As `StandingThread.read_messages`."""
        base, end = self._base, self._base.archive.end
        stop = min(stop, base.head.position)
        cold = await self._archive.read_messages(base.archive, start, min(stop, end)) if start < end else []
        return [*cold, *base.extra[max(start - end, 0) : max(stop - end, 0)]]


class Opening:
    """The open part of the tiered thread store."""

    def __init__(self, hot: HotTier, archive: Archive, legacy: LegacySource | None = None) -> None:
        self._hot, self._archive, self._legacy = hot, archive, legacy
        self._hydrating: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    async def open_thread(self, request: OpenThread, progress: Progress = no_progress) -> OpenedThread:
        """As `ThreadStore.open`."""
        traffic = Traffic()

        async def try_open() -> OpenedThread | None:
            hot = await self._hot.read_snapshot(request.thread_id, SINCE_ARCHIVED)
            stored = await self._archive.read_manifest(request.thread_id, traffic)
            header = hot.header if hot else None
            old = await self._load_v1_snapshot(request, header, stored.manifest)
            if check_open(request, header, stored.manifest, legacy=old is not None):
                return await self._find_opened_thread(request, hot, stored, progress)
            check_regressed(hot, stored.manifest)
            base = await self._build_base(request, hot, stored.manifest, old)
            cut = (await self._places(request, base).find_place()).cut
            base = await self._rewrite_slice(request, base, cut)
            plan = await self._plan_open(request, base, cut, traffic)
            if not await self._fence_old_epoch(header, stored.manifest, progress):
                return None
            if not await self._archive.try_commit(plan, stored, traffic, progress):
                return None
            return await self._rebase_or_install(request, base, plan.manifest, progress)

        return await retry_on_change(request.thread_id, try_open, failed="not opened")

    async def _fence_old_epoch(self, seen: HotHeader | None, archive: Manifest, progress: Progress) -> bool:
        """Shut the old epoch in the hot tier, and tell whether the hot thread is still what was looked at.

        An append between our look and our swap would be acknowledged and then cut, where steps are not
        archived at once: ``flush="exit"``, or an archive that its worker found down.
        """
        if is_hot_thread_to_come(seen, archive):
            # An epoch is closed in its own hot thread: so that is made first, closed, and looked at again.
            # Were it open for a moment, an append would count that another open's swap does not know.
            shut = replace(archive, closed=True)
            with contextlib.suppress(FencedError):  # a newer one is there by now
                await self._install_hot_thread(shut, progress, replace=True, back_to=UNBOUNDED)
            return False
        if seen is None or seen.deleted:
            return True
        if not seen.closed:
            await self._hot.close_epoch(seen.thread_id, seen.epoch)
        return await self._hot.read_header(seen.thread_id) == replace(seen, closed=True)

    # -- what the open goes on from

    async def _load_v1_snapshot(
        self, request: OpenThread, hot: HotHeader | None, archive: Manifest
    ) -> LegacySnapshot | None:
        """The version 1 snapshot that becomes this thread's beginning, if there is one."""
        if self._legacy is None:
            return None
        if archive.legacy is not None:
            await self._legacy.check_unchanged(archive.legacy)
        if archive.version > 0 or is_alive(hot, archive):
            return None
        return await self._legacy.load_snapshot(request.thread_id, request.adapter)

    async def _build_base(
        self, request: OpenThread, hot: HotSnapshot | None, archive: Manifest, old: LegacySnapshot | None
    ) -> OpenBase:
        if hot is not None and continues_archive(hot, archive):
            return await self._combine_tiers(hot, archive)
        if archive.is_absent:
            return self._build_first_base(request, archive, old)
        return OpenBase(
            archive, (), archive.committed, archive.head, None, archive.legacy,
            archive.slice, archive.slice_version, archive.adapter,
        )  # fmt: skip

    async def _combine_tiers(self, hot: HotSnapshot, archive: Manifest) -> OpenBase:
        """The archive and what hot has beyond; after a roll-back either may have the newer state."""
        header = hot.header
        data, version = header.slice, header.slice_version
        if version < archive.slice_version:
            data, version = await self._archive.read_slice(archive), archive.slice_version
        committed = max(header.committed, archive.committed)
        return OpenBase(
            archive, hot_messages_from(hot, archive.head.position), committed, header.head, header,
            archive.legacy, data, version, header.adapter or archive.adapter,
        )  # fmt: skip

    def _build_first_base(
        self, request: OpenThread, archive: Manifest, old: LegacySnapshot | None
    ) -> OpenBase:
        if old is None:
            version = 1 if request.slice else 0
            adapter = request.adapter or request.begun_with
            return OpenBase(archive, (), 0, EMPTY, None, None, request.slice, version, adapter)
        check_adapter(request, old.adapter)
        end = Head(position=len(old.messages), last_id=old.messages[-1].id if old.messages else "")
        return OpenBase(
            archive, old.messages, end.position, end, None, old.origin,
            old.slice, 1 if old.slice else 0, old.adapter,
        )  # fmt: skip

    async def _rewrite_slice(self, request: OpenThread, base: OpenBase, cut: Head) -> OpenBase:
        if request.rewrites is None or (base.archive.is_absent and base.hot is None):
            return base
        data = await _TieredStanding(self._archive, base).read_slice()
        born = _creation_epoch(request, base) if base.archive.is_absent else base.archive.born
        changed = request.rewrites(data, cut, born)
        if changed == data:
            return base
        return replace(base, slice=changed, slice_version=base.slice_version + 1)

    async def _plan_open(
        self, request: OpenThread, base: OpenBase, cut: Head, traffic: Traffic
    ) -> CommitPlan:
        start = base.archive.end
        log = whole_log(base.archive)
        if cut.position < start:
            log = await self._archive.read_log_below(base.archive, cut.position)
        new = (*base.extra[: max(0, cut.position - start)], *request.messages)
        end = cut.position + len(request.messages)
        changes: dict[str, Any] = {
            "epoch": request.epoch,
            "owner": request.owner,
            "closed": False,
            "ended": False,
            "committed": end if request.messages else min(base.committed, cut.position),
            "adapter": base.adapter,
            "legacy": base.legacy,
            "cut": base.head.position - cut.position,
            "deleted": False,
            "slice_version": base.slice_version,
        }
        if base.archive.is_absent:
            origin = base.hot.origin if base.hot is not None else ""
            changes |= {"born": _creation_epoch(request, base), "origin": origin}
        if base.archive.is_absent or base.slice_version != base.archive.slice_version:
            data, name = await self._archive.store_slice(
                request.thread_id, base.archive.gen, base.slice, traffic
            )
            changes |= {"slice": data, "slice_object": name}
        return plan_commit(
            base.archive, log, new,
            nonce=self._archive.make_nonce(), key=self._archive.key, head_before=cut, **changes,
        )  # fmt: skip

    # -- the hot copy

    async def _rebase_or_install(
        self, request: OpenThread, base: OpenBase, archive: Manifest, progress: Progress
    ) -> OpenedThread:
        """Hot was what the archive was made of: change its header rather than send it all again."""
        keep = archive.head.position - len(request.messages)
        at = await self._places(request, _base_of_archive(archive)).find_head_again()
        if base.hot is not None and base.hot.base.position <= min(keep, at.position):
            header = await self._hot.rebase(
                Rebase(
                    expected=(base.hot.epoch, base.hot.head),
                    header=self._build_header(archive, base.hot.base, base.hot.base_size, base.slice),
                    keep=keep,
                    messages=request.messages,
                )
            )
            if header is not None:
                return _build_opened_thread(header, archive, at)
        return await self._install_opened_thread(request, archive, progress)

    async def _find_opened_thread(
        self, request: OpenThread, hot: HotSnapshot | None, stored: Stored, progress: Progress
    ) -> OpenedThread | None:
        """What an open that was made before is answered; None: look again."""
        archive = stored.manifest
        if hot is not None and hot.header.epoch == archive.epoch and continues_archive(hot, archive):
            return _build_opened_thread(
                hot.header,
                archive,
                await self._places(request, await self._combine_tiers(hot, archive)).find_head_again(),
            )
        renewed = await self._archive.renew_manifest(stored)
        if renewed is None:
            return None
        return await self._install_opened_thread(request, renewed.manifest, progress)

    async def _install_opened_thread(
        self, request: OpenThread, archive: Manifest, progress: Progress
    ) -> OpenedThread:
        at = await self._places(request, _base_of_archive(archive)).find_head_again()
        # The step that is under way there may stand already.
        header = await self._install_hot_thread(archive, progress, replace=True, back_to=at.position)
        return _build_opened_thread(header, archive, at)

    def _places(self, request: OpenThread, base: OpenBase) -> OpenPlaces:
        return OpenPlaces(request, _TieredStanding(self._archive, base))

    async def _install_hot_thread(
        self, archive: Manifest, progress: Progress, *, replace: bool, back_to: int
    ) -> HotHeader:
        # A step that stands already is looked for at its head: that must be held, too.
        start = min(tail_start(archive, TAIL_MESSAGES, TAIL_BYTES), max(0, back_to - 1))
        messages = await self._archive.read_packed(archive, start, progress)
        base = EMPTY
        if start == archive.head.position:
            base = archive.head
        elif start > 0:
            # The first message is read for its id alone: a hot thread must know what comes before it.
            base, messages = Head(position=start + 1, last_id=messages[0].id), messages[1:]
        below = archive.size - messages.message_bytes
        header = self._build_header(archive, base, below, await self._archive.read_slice(archive))
        return await self._hot.install(header, messages, replace=replace)

    @staticmethod
    def _build_header(archive: Manifest, base: Head, base_size: int, data: bytes) -> HotHeader:
        return HotHeader(
            thread_id=archive.thread_id,
            epoch=archive.epoch,
            owner=archive.owner,
            head=archive.head,
            committed=archive.committed,
            base=base,
            closed=archive.closed,
            slice=data,
            slice_version=archive.slice_version,
            adapter=archive.adapter,
            size=archive.size,
            base_size=base_size,
            archived=archive.head.position,
            archived_size=archive.size,
            born=archive.born,
            origin=archive.origin,
            cut=archive.cut,
        )

    async def hydrate_thread(
        self, thread_id: str, epoch: int, progress: Progress = no_progress, *, back_to: int = UNBOUNDED
    ) -> HotHeader:
        """As `ThreadStore.hydrate`: the newest messages, and all from ``back_to`` on (0: the whole thread).

        The manifest is renewed first.  The hot thread may have been lost with messages that are on their way
        to the archive: they would come there later, and take the place of what is appended meanwhile.

        Raises:
            FencedError: Another epoch has the thread, or this one is closed.
            HeadMovedError: The archive is from before the caller's open.
        """
        turn = self._hydrating.setdefault(thread_id, asyncio.Lock())
        waits = turn.locked()
        async with turn:
            if waits:
                # Of several in this process that found it cold at once, one has read the archive.
                there = await self._hot.read_header(thread_id)
                if there is not None and _serves(there, epoch, back_to):
                    return there
            return await self._hydrate_alone(thread_id, epoch, progress, back_to)

    async def _hydrate_alone(self, thread_id: str, epoch: int, progress: Progress, back_to: int) -> HotHeader:
        async def install() -> HotHeader | None:
            stored = await self._archive.read_manifest(thread_id)
            self._check_own(stored.manifest, epoch)
            try:
                renewed = await self._archive.renew_manifest(stored)
            except UnansweredWriteError:
                if (there := await self._find_alive_header(stored.manifest)) is None:
                    raise
                return there
            if renewed is None:
                # Perhaps that of another one who makes it hot.
                return await self._find_alive_header(stored.manifest)
            return await self._install_hot_thread(renewed.manifest, progress, replace=False, back_to=back_to)

        return await retry_on_change(thread_id, install, failed="not made hot")

    async def _find_alive_header(self, archive: Manifest) -> HotHeader | None:
        header = await self._hot.read_header(archive.thread_id)
        return header if is_alive(header, archive) else None

    @staticmethod
    def _check_own(archive: Manifest, epoch: int) -> None:
        if archive.is_absent and archive.epoch <= epoch:
            raise ThreadNotFoundError(f"thread {archive.thread_id!r} is not archived")
        Fence.of(archive).check_writer(epoch)


def _serves(hot: HotHeader, epoch: int, back_to: int) -> bool:
    """Whether a hot thread is what a hydration under this epoch would make."""
    is_open = hot.epoch == epoch and not hot.closed and not hot.deleted
    return is_open and hot.base.position <= back_to


def _base_of_archive(archive: Manifest) -> OpenBase:
    """What is archived, and nothing behind it."""
    return OpenBase(archive, (), archive.committed, archive.head, slice_version=archive.slice_version)


def _creation_epoch(request: OpenThread, base: OpenBase) -> int:
    """The epoch that created the thread; 0 if it was there before there was an archive."""
    if base.hot is not None:
        return base.hot.born
    return 0 if base.legacy is not None else request.epoch


def _build_opened_thread(header: HotHeader, archive: Manifest, at: Head) -> OpenedThread:
    return OpenedThread(header, created=archive.born == archive.epoch, cut=archive.cut, at=at)


logger = logging.getLogger(__name__)

T = TypeVar("T")


class RepairingHotTier:
    """`HotTier` around another one: a call that finds a hot thread damaged drops it and is made again.

    It then comes back from the archive, as one does that the server lost.  Only what the archive holds whole
    is dropped.  What is not archived yet is archived first; where that cannot be read, the hot thread stays
    as it is, and the error is the caller's.

    Raises (every method):
        StoreCorruptError: The hot thread is damaged, and holds something that the archive lacks.
    """

    def __init__(self, inner: HotTier, archive: Archive) -> None:
        self._inner, self._archive = inner, archive
        # Over the damaged thread itself: a flush in here must not lead here again.
        self._flushing = Flushing(inner, archive, Backlog())

    async def read_header(self, thread_id: str) -> HotHeader | None:
        """See `HotTier.read_header`."""
        return await self._call_with_repair(thread_id, lambda: self._inner.read_header(thread_id))

    async def read_snapshot(self, thread_id: str, since: int) -> HotSnapshot | None:
        """See `HotTier.read_snapshot`."""
        return await self._call_with_repair(thread_id, lambda: self._inner.read_snapshot(thread_id, since))

    async def read_page(self, thread_id: str, wanted: PageRange) -> HotSnapshot | None:
        """See `HotTier.read_page`."""
        return await self._call_with_repair(thread_id, lambda: self._inner.read_page(thread_id, wanted))

    async def step_view(
        self, thread_id: str, head: Head, *, after: int, limit: int, max_bytes: int, ids: int
    ) -> StepView | None:
        """See `HotTier.step_view`."""
        return await self._call_with_repair(
            thread_id,
            lambda: self._inner.step_view(
                thread_id, head, after=after, limit=limit, max_bytes=max_bytes, ids=ids
            ),
        )

    async def append(self, step: StepAppend) -> Appended | None:
        """See `HotTier.append`."""
        return await self._call_with_repair(step.thread_id, lambda: self._inner.append(step))

    async def rebase(self, change: Rebase) -> HotHeader | None:
        """See `HotTier.rebase`."""
        return await self._call_with_repair(change.header.thread_id, lambda: self._inner.rebase(change))

    async def install(
        self, header: HotHeader, messages: Sequence[StoredMessage], *, replace: bool
    ) -> HotHeader:
        """See `HotTier.install`."""
        return await self._call_with_repair(
            header.thread_id, lambda: self._inner.install(header, messages, replace=replace)
        )

    async def evict(
        self, thread_id: str, epoch: int, archived: Archived, *, warm_ttl: float | None = None
    ) -> Eviction:
        """See `HotTier.evict`."""
        return await self._call_with_repair(
            thread_id, lambda: self._inner.evict(thread_id, epoch, archived, warm_ttl=warm_ttl)
        )

    async def trim(self, thread_id: str, epoch: int, archived: Head, keep_from: int) -> HotHeader | None:
        """See `HotTier.trim`."""
        return await self._call_with_repair(
            thread_id, lambda: self._inner.trim(thread_id, epoch, archived, keep_from)
        )

    async def close_epoch(self, thread_id: str, epoch: int) -> None:
        """See `HotTier.close_epoch`."""
        await self._call_with_repair(thread_id, lambda: self._inner.close_epoch(thread_id, epoch))

    async def save_slice(self, thread_id: str, epoch: int, data: bytes, expected_version: int) -> int | None:
        """See `HotTier.save_slice`."""
        return await self._call_with_repair(
            thread_id, lambda: self._inner.save_slice(thread_id, epoch, data, expected_version)
        )

    async def drop(self, thread_id: str, epoch: int) -> None:
        """See `HotTier.drop`."""
        await self._call_with_repair(thread_id, lambda: self._inner.drop(thread_id, epoch))

    async def drop_damaged(self, thread_id: str, archived: Archived, slice_: bytes) -> bool:
        """See `HotTier.drop_damaged`."""
        return await self._inner.drop_damaged(thread_id, archived, slice_)

    async def scan_page(self, cursor: str | None = None, count: int = 500) -> ScannedPage:
        """See `HotTier.scan_page`."""
        return await self._inner.scan_page(cursor, count)

    async def mark_archived(self, thread_id: str, place: str) -> None:
        """See `HotTier.mark_archived`."""
        await self._inner.mark_archived(thread_id, place)

    async def check(self) -> None:
        """See `HotTier.check`."""
        await self._inner.check()

    async def close(self) -> None:
        """See `HotTier.close`."""
        await self._inner.close()

    async def _call_with_repair(self, thread_id: str, call: Callable[[], Awaitable[T]]) -> T:
        try:
            return await call()
        except StoreCorruptError as error:
            if not await self._drop_damaged_thread(thread_id):
                raise
            logger.warning(
                "thread %s is damaged in the hot tier: it was dropped there, to come from the archive: %s",
                thread_id,
                error,
            )
        return await call()

    async def _drop_damaged_thread(self, thread_id: str) -> bool:
        """Drop a damaged hot thread, if the archive holds it; whether it is gone."""
        stored = await self._archive.read_manifest(thread_id)
        archive = stored.manifest
        if archive.is_absent:
            return False
        try:
            if await self._try_evict(archive):
                return True
        except StoreCorruptError:
            return await self._archive.with_manifest(thread_id, self._drop_unreadable_thread)
        return await self._archived_and_evicted(stored)

    async def _drop_unreadable_thread(self, archive: Manifest) -> bool:
        if archive.is_absent:
            return False
        slice_ = await self._archive.read_slice(archive)
        return await self._inner.drop_damaged(archive.thread_id, archive.archived, slice_)

    async def _try_evict(self, archive: Manifest) -> bool:
        outcome = await self._inner.evict(archive.thread_id, archive.epoch, archive.archived)
        return outcome is not Eviction.NEWER

    async def _archived_and_evicted(self, stored: Stored) -> bool:
        """The damage may lie below what the archive lacks: then that can be read and archived."""
        archive, thread_id = stored.manifest, stored.manifest.thread_id
        try:
            rest = await self._inner.read_snapshot(thread_id, archive.head.position)
            if rest is None:
                return True
            request = FlushThread(thread_id, rest.header.epoch, closes=rest.header.closed, ends=False)
            await self._flushing.flush_thread(
                request, first_try=_snapshot_beyond_archive(rest, archive), known=stored.etag or ""
            )
        except (StoreCorruptError, ConflictError):
            return False
        return await self._try_evict((await self._archive.read_manifest(thread_id)).manifest)


def _snapshot_beyond_archive(rest: HotSnapshot, archive: Manifest) -> HotSnapshot | None:
    """The messages beyond the archive, where the header says that they follow it.

    The message before them, which would show it, may be the damaged one.
    """
    header = rest.header
    follows = (header.epoch, header.archived, header.archived_size) == (
        archive.epoch,
        archive.head.position,
        archive.size,
    )
    if not follows or rest.first != archive.head.position:
        return None
    return replace(rest, header=replace(header, base=archive.head))
