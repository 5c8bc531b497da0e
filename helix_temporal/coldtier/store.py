"""Threads in two tiers: `TieredThreads`, the thread store over a hot tier and an archive.

Also what it decides on the way: how much of an archived thread stays hot (`KeepHot`, `Trimming`), which
windows of messages are remembered, and payloads in the archive.
"""

import copy
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeVar

from helix_temporal.blobs import BlobStore, ConditionFailedError
from helix_temporal.coldtier.archive import UNBOUNDED, Archive, Stored, Traffic, check_slice
from helix_temporal.coldtier.flush import STEP_SECONDS, Backlog, Flushing
from helix_temporal.coldtier.fork import Forking
from helix_temporal.coldtier.format import Layout, Manifest, SegmentRef
from helix_temporal.coldtier.liveness import is_old_copy
from helix_temporal.coldtier.opening import Opening, RepairingHotTier
from helix_temporal.coldtier.plan import DIRECT_MAX
from helix_temporal.coldtier.read import TieredReads
from helix_temporal.coldtier.upkeep import Upkeep
from helix_temporal.coldtier.zeitlich import LegacySource, ZeitlichMigration
from helix_temporal.errors import FencedError, HelixError, StoreUnavailableError, ThreadNotFoundError
from helix_temporal.models.newest import Newest
from helix_temporal.models.stored_messages import Head, StoredMessage, size_of
from helix_temporal.stores.archive_mark import hot_for_reading
from helix_temporal.stores.protocols.hot import (
    Appended,
    Archived,
    Eviction,
    HotHeader,
    HotTier,
    StepAppend,
    StepView,
)
from helix_temporal.stores.protocols.threads import (
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
from helix_temporal.telemetry import metrics

logger = logging.getLogger(__name__)

T = TypeVar("T")

BROUGHT_BACK_MAX: Final = 64 * 1024 * 1024
"""More than so many bytes are not made hot again for the sake of a step that may stand there."""


@dataclass(frozen=True, slots=True)
class KeepHot:
    """What a thread that stays open keeps hot although it is archived.

    Attributes:
        archived_bytes: Older messages are forgotten once they are about so many packed bytes.
        messages: So many newest ones before a step always stay, and its context window: what a step
            reads never has to come from the archive because of this.
    """

    archived_bytes: int = 8 * 1024 * 1024
    messages: int = 200


def keep_from(view: StepView, head: Head, archived: Archived, keep_hot: KeepHot) -> int | None:
    """The place below which a hot thread may forget what is archived; None where that isn't worth a call."""
    header = view.header
    place = min(head.position - max(len(view.before), keep_hot.messages), archived.head.position)
    count = place - header.base.position
    # The sizes of single messages are not known here; some bytes more or less do no harm.
    forgotten = _mean_size(header) * count
    return place if count > 0 and forgotten >= keep_hot.archived_bytes else None


def can_come_back(header: HotHeader, head: Head) -> bool:
    """Whether what follows ``head``, which lies below the base, is little enough to be made hot again."""
    base = header.base.position
    older = header.base_size * (base - head.position) / base
    return header.size - header.base_size + older <= BROUGHT_BACK_MAX


def _mean_size(header: HotHeader) -> float:
    count = header.head.position - header.base.position
    return (header.size - header.base_size) / count if count else 0.0


class Trimming:
    """Keeps an open thread small in the hot tier, but long enough for a late look."""

    def __init__(self, hot: HotTier, archive: Archive, flushing: Flushing, keep_hot: KeepHot) -> None:
        self._hot, self._archive, self._flushing, self._keep_hot = hot, archive, flushing, keep_hot

    async def trim_thread(self, thread_id: str, view: StepView, head: Head) -> None:
        """Forget what no step needs any more, if the archive is known to hold it; no step fails by this."""
        stored, header = self._archive.find_remembered(thread_id), view.header
        if stored is None or stored.manifest.epoch != header.epoch or stored.manifest.is_absent:
            return
        archived = stored.manifest.archived
        place = keep_from(view, head, archived, self._keep_hot)
        if place is None:
            return
        try:
            await self._hot.trim(thread_id, header.epoch, archived.head, place)
        except HelixError as error:
            # The next step tries again.
            logger.warning("thread %s: not trimmed: %s", thread_id, type(error).__name__)

    async def drop_if_too_short(self, thread_id: str, view: StepView, head: Head) -> bool:
        """Drop a hot thread that begins after ``head``, so that a longer one is installed; whether it did.

        After a reset, the workflow looks for steps that stand further back than any other look does.
        """
        header = view.header
        if head.position >= header.base.position or not can_come_back(header, head):
            return False
        await self._flushing.flush_thread(FlushThread(thread_id, header.epoch))
        stored = self._archive.find_remembered(thread_id) or await self._archive.read_manifest(thread_id)
        await self._hot.evict(thread_id, header.epoch, stored.manifest.archived)
        return True


REMEMBERED: Final = 512
"""Threads whose ids a worker remembers, each some 10 KB."""


@dataclass(frozen=True, slots=True)
class _RememberedIds:
    """Ids of the messages before a base; they are what they are for as long as the epoch lasts."""

    epoch: int
    base: Head
    ids: tuple[str, ...]


class Windows:
    """The context window and the ids before a step, joined from both tiers.

    Ids are remembered: a thread with large messages is hydrated by its newest 8 MiB alone, and each of its
    turns would otherwise read what lies before them, bodies and all, for their ids.
    """

    def __init__(self, reading: TieredReads) -> None:
        self._reading = reading
        self._remembered = Newest[str, _RememberedIds](REMEMBERED)

    async def complete_window(
        self, thread_id: str, view: StepView, head: Head, limit: int, max_bytes: int, ids: int
    ) -> StepView:
        """Take from the archive what the window and its ids want and the hot thread no longer holds."""
        base, known = view.header.base, len(view.before) + len(view.earlier_ids)
        if base.position == 0 or head.position - known > base.position or head.position < base.position:
            return view
        older: tuple[StoredMessage, ...] = ()
        if not view.earlier_ids and limit > known:
            older = await self._read_older(thread_id, view, limit - known, max_bytes - size_of(view.before))
        before = (
            await self._list_ids_before(thread_id, view.header, ids - known)
            if ids > known + len(older)
            else ()
        )
        earlier = before[: max(len(before) - len(older), 0)]
        return replace(view, before=(*older, *view.before), earlier_ids=(*earlier, *view.earlier_ids))

    async def _read_older(
        self, thread_id: str, view: StepView, limit: int, space: int
    ) -> tuple[StoredMessage, ...]:
        if space <= 0:
            return ()
        found = await self._reading.read_older(thread_id, view.header.base, limit, space)
        # A page gives one message even if it is too large; a window does so only if it is empty.
        return () if view.before and size_of(found) > space else found

    async def _list_ids_before(self, thread_id: str, header: HotHeader, count: int) -> tuple[str, ...]:
        """Ids of up to ``count`` messages before the hot thread's base."""
        remembered = self._remembered.get(thread_id)
        wanted = min(count, header.base.position)
        is_same = remembered is not None and (remembered.epoch, remembered.base) == (
            header.epoch,
            header.base,
        )
        if remembered is None or not is_same or len(remembered.ids) < wanted:
            remembered = _RememberedIds(
                header.epoch, header.base, await self._reading.read_older_ids(thread_id, header.base, wanted)
            )
            self._remembered[thread_id] = remembered
        return remembered.ids[max(len(remembered.ids) - wanted, 0) :]

    def forget_ids(self, thread_id: str) -> None:
        """Nobody is at work on the thread."""
        self._remembered.pop(thread_id, None)


class BlobPayloads:
    """A `PayloadStore` over a blob store; garbage collection removes what was left behind."""

    def __init__(self, archive: Archive) -> None:
        self._archive, self._blobs, self._layout = archive, archive.blobs, archive.layout

    async def put_payload(self, thread_id: str, key: str, data: bytes, ttl: float) -> None:  # noqa: ARG002 (nothing expires here)
        """As `PayloadStore.put_payload`; nothing expires here."""
        await self._ensure_manifest(thread_id)
        await self._blobs.put(self._layout.payload_prefix(thread_id) + key, data)

    async def get_payload(self, thread_id: str, key: str) -> bytes | None:
        """As `PayloadStore.get_payload`."""
        blob = await self._blobs.get(self._layout.payload_prefix(thread_id) + key)
        return blob.data if blob else None

    async def delete_payload(self, thread_id: str, key: str) -> None:
        """As `PayloadStore.delete_payload`."""
        await self._blobs.delete(self._layout.payload_prefix(thread_id) + key)

    async def delete_payloads(self, thread_id: str) -> None:
        """As `PayloadStore.delete_payloads`."""
        for key in [info.key async for info in self._blobs.list(self._layout.payload_prefix(thread_id))]:
            await self._blobs.delete(key)

    async def _ensure_manifest(self, thread_id: str) -> None:
        """The thread of a text may never come to be: the maintenance worker must find it all the same."""
        stored = self._archive.find_remembered(thread_id) or Stored(None, Manifest(thread_id))
        try:
            await self._archive.ensure_named(stored, Traffic())
        except ConditionFailedError:
            return  # a manifest is there already


_HYDRATE_TRIES = 5
_APPEND_TRIES = 50
"""The model has been paid: a hot tier that is wiped again and again is no reason to ask it twice."""
_MERGE_IN_STEP = 4 * 1024 * 1024
"""A step merges at most this much by the way; larger merges are the maintenance worker's."""


@dataclass(frozen=True, slots=True)
class StoreNames:
    """What the hot tier and the archive are called in metrics: ``redis``, ``s3``."""

    hot: str = metrics.OTHER
    archive: str = metrics.OTHER


class ArchiveContents(NamedTuple):
    """What an archive holds of a thread: a manifest that is absent and no segments where that is nothing."""

    manifest: Manifest
    segments: tuple[SegmentRef, ...]


class TieredThreads:
    """A `ThreadStore` over a hot tier and a blob store.

    Args:
        warm_ttl: Seconds that an archived thread stays hot after an evict; None drops it at once.
        key: Signs manifests with HMAC-SHA-256; the same key must be given ever after.
        legacy: Where version 1 snapshots lie.
        backlog: How much may be unarchived before new work is refused.
        keep_hot: How much of what is archived stays hot while a thread is open.
        step_seconds: How long a step waits for the archive.
        names: Of the stores, in metrics.
    """

    archives: bool = True

    def __init__(
        self,
        hot: HotTier,
        blobs: BlobStore,
        *,
        prefix: str = "",
        warm_ttl: float | None = None,
        key: bytes | None = None,
        legacy: LegacySource | None = None,
        backlog: Backlog | None = None,
        keep_hot: KeepHot | None = None,
        clock: Callable[[], float] = time.time,
        step_seconds: float = STEP_SECONDS,
        names: StoreNames | None = None,
    ) -> None:
        self._names = names or StoreNames()
        self.blobs, self.layout = blobs, Layout(prefix)
        self._archive = Archive(blobs, self.layout, key)
        self._unrepaired, self._snapshots = hot, legacy
        self.hot: HotTier = RepairingHotTier(hot, self._archive)
        hot = self.hot
        self._warm_ttl, self._legacy = warm_ttl, legacy is not None
        self._flushing = Flushing(hot, self._archive, backlog or Backlog(), clock, step_seconds)
        self._opening = Opening(hot, self._archive, legacy)
        self._trimming = Trimming(hot, self._archive, self._flushing, keep_hot or KeepHot())
        self._reading = TieredReads(hot, self._archive)
        self._windows = Windows(self._reading)
        self._forking = Forking(self._archive, self._flushing)
        self._migration = ZeitlichMigration(hot, self._archive, self._flushing, legacy)
        self.upkeep = Upkeep(hot, self._archive)
        self.payloads = BlobPayloads(self._archive)

    def for_reading(
        self,
        wrap_hot: Callable[[HotTier], HotTier] | None = None,
        wrap_blobs: Callable[[BlobStore], BlobStore] | None = None,
    ) -> "TieredThreads":
        """The same threads for who only looks at them: no read changes a store.

        A hot thread that is damaged is not repaired, but an error: `StoreCorruptError`.

        Args:
            wrap_hot: Makes the hot tier that reads ask; `upkeep`, which may take long, asks the own one.
            wrap_blobs: As ``wrap_hot``, of the archive.
        """
        reader, unwrapped = copy.copy(self), hot_for_reading(self._unrepaired)
        hot = unwrapped if wrap_hot is None else wrap_hot(unwrapped)
        archive = self._archive
        if wrap_blobs is not None:
            archive = Archive(wrap_blobs(self.blobs), self.layout, archive.key)
        reader.hot, reader.blobs = hot, archive.blobs
        reader._archive = archive  # noqa: SLF001 (a copy of our own)
        reader._reading = TieredReads(hot, archive)  # noqa: SLF001
        migration = ZeitlichMigration(hot, archive, self._flushing, self._snapshots)
        reader._migration = migration  # noqa: SLF001
        reader.upkeep = Upkeep(unwrapped, self._archive)
        return reader

    async def open(self, request: OpenThread, progress: Progress = no_progress) -> OpenedThread:
        """As `ThreadStore.open`."""
        check_slice(request.slice)
        return await self._opening.open_thread(request, progress)

    async def append(self, step: StepAppend) -> Appended:
        """As `ThreadStore.append`; hydrates a cold thread first."""
        check_slice(step.slice or b"")

        async def append() -> Appended | None:
            # Looked up in each try: whoever makes the thread hot again renews the manifest.
            stored, known = self._archive.find_remembered(step.thread_id), step
            if stored is not None and stored.manifest.epoch == step.epoch:
                known = replace(step, archived=stored.manifest.archived)
            began = time.monotonic()
            appended = await self.hot.append(known)
            if appended is not None:
                metrics.APPEND_DURATION.record_since(began, backend=self._names.hot)
            return appended and replace(appended, manifest=(stored and stored.etag) or "")

        return await self._install_if_wiped(
            step.thread_id, step.epoch, append, back_to=step.head.position, tries=_APPEND_TRIES
        )

    async def step_view(
        self, thread_id: str, epoch: int, head: Head, *, after: int, limit: int, max_bytes: int, ids: int
    ) -> StepView:
        """As `ThreadStore.step_view`; refuses new work while too much is unarchived.

        Raises:
            ColdTierBehindError: It is.
        """

        async def look_at_step() -> StepView | None:
            view = await self.hot.step_view(
                thread_id, head, after=after, limit=limit, max_bytes=max_bytes, ids=ids
            )
            if view is None:
                return None
            Fence.of(view.header).check_writer(epoch)
            return None if await self._trimming.drop_if_too_short(thread_id, view, head) else view

        view = await self._install_if_wiped(thread_id, epoch, look_at_step, back_to=head.position)
        if ids and not view.after:
            # A turn begins; one under way is let to its end.
            await self._flushing.check_backlog(view.header)
        if limit > 1:
            # The end of a turn looks at one message, which tells nothing of the window.
            await self._trimming.trim_thread(thread_id, view, head)
        return await self._windows.complete_window(thread_id, view, head, limit, max_bytes, ids)

    async def read(self, request: ReadPage) -> ThreadPage:
        """As `ThreadStore.read`."""
        try:
            return await self._reading.read_page(request)
        except ThreadNotFoundError:
            page = await self._migration.read_page(request)
            if page is None:
                raise
            return page

    async def read_facts(self, thread_id: str) -> ThreadFacts:
        """As `ThreadStore.read_facts`."""
        try:
            return await self._reading.read_facts(thread_id)
        except ThreadNotFoundError:
            facts = await self._migration.read_facts(thread_id)
            if facts is None:
                raise
            return facts

    async def read_hot_header(self, thread_id: str) -> HotHeader | None:
        """As `ThreadStore.read_hot_header`."""
        return await self.hot.read_header(thread_id)

    async def list_contents(self, thread_id: str) -> ArchiveContents:
        """The manifest of a thread, and all segments that hold its messages; reads no message.

        Raises:
            StoreUnavailableError: The archive does not answer.
            ArchiveError: What it holds of the thread is damaged.
        """

        async def list_segments(manifest: Manifest) -> ArchiveContents:
            return ArchiveContents(manifest, await self._archive.list_segments(manifest))

        return await self._archive.with_manifest(thread_id, list_segments)

    async def fork(
        self, request: ForkThread, transform: Transform | None = None, progress: Progress = no_progress
    ) -> ForkedThread:
        """As `ThreadStore.fork`: no message passes through us unless a transform wants them.

        A source that is a version 1 snapshot is imported first.
        """
        # Before anything else: by now the source may be gone.
        made = await self._forking.find_earlier_fork(request)
        if made is not None:
            return made
        await self._migration.import_if_needed(request.source_id)
        return await self._forking.fork_thread(request, transform, progress)

    def v1_threads(self) -> AsyncIterator[str]:
        """The ids of all threads that have a version 1 snapshot, taken over or not.

        Raises:
            InvalidConfigError: Nobody said where they lie.
        """
        return self._migration.list_threads()

    async def import_v1(self, thread_id: str, adapter: str = "") -> ThreadFacts:
        """Make a version 1 snapshot the archive of this thread, which nobody has open yet.

        An open does the same by itself; this is for doing it beforehand, and for naming the adapter.

        Raises:
            ThreadNotFoundError: There is no snapshot.
            ThreadExistsError: The thread has an archive that did not come from it.
            LegacyWriterActiveError: The snapshot changed since it was taken over.
            InvalidRequestError: Its rows are of another adapter than the one named.
        """
        await self._migration.import_v1(thread_id, adapter)
        return await self._reading.read_facts(thread_id)

    async def export_v1(self, thread_id: str, instructions: str | None = None, *, adapter: str = "") -> str:
        """Write all finished turns as a version 1 snapshot; returns its key.

        Messages that came from version 1 are written as they were, others in the envelope of ``adapter``
        (``anthropic``, ``googleGenAI``, ``langChain``); unless it is named, of the thread's adapter, or of
        its newest row from there, and in a generic one where there is none.  ``instructions`` become the
        first row.  A snapshot that says the same already stays as it is, byte for byte.

        Raises:
            ThreadNotFoundError: There is no such thread.
            LegacyWriterActiveError: Another snapshot is there than the one that was taken over.
        """
        return (await self._migration.export_v1(thread_id, instructions, adapter)).key

    async def save_slice(self, thread_id: str, epoch: int, data: bytes, expected_version: int) -> int:
        """As `ThreadStore.save_slice`.

        Raises:
            TooLargeError: It exceeds 64 MiB.
        """
        check_slice(data)
        return await self._install_if_wiped(
            thread_id, epoch, lambda: self.hot.save_slice(thread_id, epoch, data, expected_version)
        )

    async def _install_if_wiped(
        self,
        thread_id: str,
        epoch: int,
        call: Callable[[], Awaitable[T | None]],
        *,
        back_to: int = UNBOUNDED,
        tries: int = _HYDRATE_TRIES,
    ) -> T:
        """The answer of a call on the hot thread, which is installed from the archive where it is not there.

        Redis was wiped, was short of memory, or the thread is cold: then the call answers None, and is made
        again once the hot thread is back.

        Args:
            thread_id: Which one.
            epoch: The caller's.
            call: A call on the hot tier; None if it does not hold the hot thread.
            back_to: The hot thread must hold all messages from this position on.
            tries: How often the hot thread may vanish again.

        Raises:
            StoreUnavailableError: It vanished each time.
            FencedError, HeadMovedError, ThreadNotFoundError: As `hydrate`.
        """
        for _ in range(tries):
            answer = await call()
            if answer is not None:
                return answer
            await self._hydrate(thread_id, epoch, no_progress, back_to)
        raise StoreUnavailableError(
            f"thread {thread_id!r}: dropped from the hot tier as often as it was made hot; "
            "is it short of memory?"
        )

    async def delete(self, thread_id: str, epoch: int) -> None:
        """As `ThreadStore.delete`: leaves a tombstone in the archive, where there was anything."""
        if await self._is_known(thread_id):
            await self.upkeep.delete(thread_id, epoch)

    async def _is_known(self, thread_id: str) -> bool:
        if self._legacy or await self.hot.read_header(thread_id) is not None:
            return True
        async for _ in self.blobs.list(self.layout.thread_prefix(thread_id)):
            return True
        return False

    async def hydrate(self, thread_id: str, epoch: int, progress: Progress = no_progress) -> HotHeader | None:
        """As `ThreadStore.hydrate`: the newest part; older pages are read where they lie."""
        return await self._hydrate(thread_id, epoch, progress, UNBOUNDED)

    async def hydrate_whole(self, thread_id: str, epoch: int, progress: Progress = no_progress) -> HotHeader:
        """Install every message, not only the newest part."""
        return await self._hydrate(thread_id, epoch, progress, 0)

    async def _hydrate(self, thread_id: str, epoch: int, progress: Progress, back_to: int) -> HotHeader:
        began = time.monotonic()
        header = await self._opening.hydrate_thread(thread_id, epoch, progress, back_to=back_to)
        size = metrics.size_class(header.size - header.base_size)
        metrics.HYDRATE_DURATION.record_since(began, backend=self._names.archive, size=size)
        return header

    async def flush(self, request: FlushThread, progress: Progress = no_progress) -> FlushReceipt:
        """As `ThreadStore.flush`."""
        if request.closes:
            await self.hot.close_epoch(request.thread_id, request.epoch)
        began = time.monotonic()
        receipt = await self._flushing.flush_thread(request, progress)
        self._record_flush(receipt, began)
        return receipt

    def _record_flush(self, receipt: FlushReceipt, began: float) -> None:
        """Record a flush that put something into the archive; most find nothing to do."""
        if receipt.status is FlushStatus.ARCHIVED and receipt.puts:
            metrics.FLUSH_DURATION.record_since(began, backend=self._names.archive)
            metrics.FLUSH_PUTS.add(receipt.puts, backend=self._names.archive)

    async def archive_step(self, step: StepAppend, appended: Appended) -> FlushReceipt:
        """As `ThreadStore.archive_step`."""
        began = time.monotonic()
        receipt = await self._flushing.archive_step(step, appended)
        self._record_flush(receipt, began)
        if receipt.status is FlushStatus.ARCHIVED and receipt.segments > DIRECT_MAX and step.commits:
            await self._try_compact(step.thread_id)
        return receipt

    async def confirm_step(self, step: StepAppend, appended: Appended) -> None:
        """As `ThreadStore.confirm_step`: one look at the manifest, and the hot thread stays what it is."""
        if appended.header.archived >= step.head.position:
            await self._flushing.confirm_step(step, appended)

    async def confirm_standing(self, thread_id: str, epoch: int, head: Head) -> None:
        """As `ThreadStore.confirm_standing`."""
        await self._flushing.confirm_standing(thread_id, epoch, head)

    async def confirm_head(self, thread_id: str, epoch: int, head: Head) -> None:
        """As `ThreadStore.confirm_head`: one look at the manifest."""
        await self._flushing.confirm_head(thread_id, epoch, head)

    async def _try_compact(self, thread_id: str) -> None:
        try:
            await self.upkeep.compact(thread_id, max_bytes=_MERGE_IN_STEP)
        except HelixError as error:
            # The step is archived; the maintenance worker tries again.
            logger.warning("thread %s: compaction put off: %s", thread_id, type(error).__name__)

    async def evict(self, thread_id: str, epoch: int) -> str:
        """As `ThreadStore.evict`; a copy that the archive has left behind goes, too."""
        outcome = await self._evict_hot_thread(thread_id, epoch)
        # Mostly the last that a worker has to do with a thread for long.
        self._archive.forget_manifest(thread_id)
        self._windows.forget_ids(thread_id)
        return outcome

    async def _evict_hot_thread(self, thread_id: str, epoch: int) -> str:
        for stored in (self._archive.find_remembered(thread_id), None):
            known = stored or await self._archive.read_manifest(thread_id)
            if known.manifest.epoch == epoch:
                archived: Archived = known.manifest.archived
                outcome = await self.hot.evict(thread_id, epoch, archived, warm_ttl=self._warm_ttl)
                if outcome is not Eviction.NEWER:
                    return outcome
                if stored is None:
                    return await self._drop_old_copy(known.manifest)
            elif known.manifest.epoch > epoch and stored is None:
                return await self._drop_leftover(thread_id, epoch)
        return Eviction.NEWER

    async def _drop_old_copy(self, archive: Manifest) -> str:
        """Drop a copy that does not go on from its archive.

        Redis was restored, or a worker was slow to install it.  No step on it was acknowledged.  A session
        that runs replaces such a copy with its next step; of one that has ended nobody else would.
        """
        # From the archive's last message on: by its id the two are compared.
        seen = await self.hot.read_snapshot(archive.thread_id, max(archive.head.position - 1, 0))
        if seen is not None and seen.header.epoch < archive.epoch:
            return await self._drop_leftover(archive.thread_id, seen.header.epoch)
        if seen is None or not is_old_copy(seen, archive):
            return Eviction.NEWER
        # Compared once more in the store: what has been written meanwhile stays.
        header = seen.header
        as_seen = Archived(header.head, header.committed, header.slice_version, header.size)
        return await self.hot.evict(archive.thread_id, archive.epoch, as_seen)

    async def _drop_leftover(self, thread_id: str, epoch: int) -> str:
        """Nobody may write under this epoch any more, and the open that followed took what it held."""
        try:
            await self.hot.drop(thread_id, epoch)
        except FencedError:
            return Eviction.NEWER
        return Eviction.DROPPED
