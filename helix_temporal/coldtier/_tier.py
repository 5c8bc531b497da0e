"""Threads in two tiers: a hot store, and an archive that decides."""

import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from helix_temporal.blobs import BlobStore
from helix_temporal.coldtier._archive import Archive, check_slice
from helix_temporal.coldtier._flushing import STEP_SECONDS, Backlog, Flushing
from helix_temporal.coldtier._forking import Forking
from helix_temporal.coldtier._layout import Layout
from helix_temporal.coldtier._legacy import LegacySource
from helix_temporal.coldtier._mending import MendedHot
from helix_temporal.coldtier._migration import Migration
from helix_temporal.coldtier._opening import Opening
from helix_temporal.coldtier._payloads import BlobPayloads
from helix_temporal.coldtier._plan import DIRECT_MAX
from helix_temporal.coldtier._reading import Reading
from helix_temporal.coldtier._trimming import Held, Trimming
from helix_temporal.coldtier._upkeep import Upkeep
from helix_temporal.coldtier._windows import Windows
from helix_temporal.errors import FencedError, HelixError, StoreUnavailableError, ThreadNotFoundError
from helix_temporal.models.records import Head
from helix_temporal.stores._opens import check_hot_epoch
from helix_temporal.stores.protocols.hot import (
    Appended,
    Archived,
    Eviction,
    HotHeader,
    HotTier,
    StepAppend,
    StepView,
)
from helix_temporal.stores.protocols.progress import Progress, no_progress
from helix_temporal.stores.protocols.threads import (
    FlushReceipt,
    FlushStatus,
    FlushThread,
    ForkedThread,
    ForkThread,
    OpenedThread,
    OpenThread,
    Page,
    ReadPage,
    ThreadFacts,
    Transform,
)

logger = logging.getLogger(__name__)

_HYDRATE_TRIES = 5
_APPEND_TRIES = 50
"""The model has been paid: a hot tier that is wiped again and again is no reason to ask it twice."""
_MERGE_IN_STEP = 4 * 1024 * 1024
"""A step merges at most this much by the way; larger merges are the maintenance worker's."""


class TieredThreads:
    """A `ThreadStore` over a hot tier and a blob store.

    Args:
        warm_ttl: Seconds that an archived thread stays hot after an evict; None drops it at once.
        key: Signs manifests with HMAC-SHA-256; the same key must be given ever after.
        legacy: Where version 1 snapshots lie.
        backlog: How much may be unarchived before new work is refused.
        held: How much of what is archived stays hot while a thread is open.
        step_seconds: How long a step waits for the archive.
    """

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
        held: Held | None = None,
        clock: Callable[[], float] = time.time,
        step_seconds: float = STEP_SECONDS,
    ) -> None:
        self.blobs, self.layout = blobs, Layout(prefix)
        self._archive = Archive(blobs, self.layout, key)
        self.hot: HotTier = MendedHot(hot, self._archive)
        hot = self.hot
        self._warm_ttl, self._legacy = warm_ttl, legacy is not None
        self._flushing = Flushing(hot, self._archive, backlog or Backlog(), clock, step_seconds)
        self._opening = Opening(hot, self._archive, legacy)
        self._trimming = Trimming(hot, self._archive, self._flushing, held or Held())
        self._reading = Reading(hot, self._archive)
        self._windows = Windows(self._reading)
        self._forking = Forking(self._archive, self._flushing)
        self._migration = Migration(hot, self._archive, self._flushing, legacy)
        self.upkeep = Upkeep(hot, self._archive)
        self.payloads = BlobPayloads(self._archive)

    async def open(self, request: OpenThread, progress: Progress = no_progress) -> OpenedThread:
        """As `ThreadStore.open`."""
        check_slice(request.slice)
        return await self._opening.open(request, progress)

    async def append(self, step: StepAppend) -> Appended:
        """As `ThreadStore.append`; hydrates a cold thread first."""
        check_slice(step.slice or b"")
        known = self._archive.remembered(step.thread_id)
        if known is not None and known.manifest.epoch == step.epoch:
            step = replace(step, archived=known.manifest.archived)
        for _ in range(_APPEND_TRIES):
            appended = await self.hot.append(step)
            if appended is not None:
                return appended
            await self._opening.hydrate(step.thread_id, step.epoch, back_to=step.head.position)
        raise _unsteady(step.thread_id)

    async def step_view(
        self, thread_id: str, epoch: int, head: Head, *, after: int, limit: int, max_bytes: int, ids: int
    ) -> StepView:
        """As `ThreadStore.step_view`; refuses new work while too much is unarchived.

        Raises:
            ColdTierBehindError: It is.
        """
        for _ in range(_HYDRATE_TRIES):
            view = await self.hot.step_view(
                thread_id, head, after=after, limit=limit, max_bytes=max_bytes, ids=ids
            )
            if view is None:
                await self._opening.hydrate(thread_id, epoch, back_to=head.position)
                continue
            check_hot_epoch(view.header, epoch)
            if await self._trimming.bring_back(thread_id, view, head):
                continue
            if ids and not view.after:
                # A turn begins; one under way is let to its end.
                await self._flushing.check_backlog(view.header)
            if limit > 1:
                # The end of a turn looks at one message, which tells nothing of the window.
                await self._trimming.trim(thread_id, view, head)
            return await self._windows.complete(thread_id, view, head, limit, max_bytes, ids)
        raise _unsteady(thread_id)

    async def read(self, request: ReadPage) -> Page:
        """As `ThreadStore.read`."""
        try:
            return await self._reading.read(request)
        except ThreadNotFoundError:
            page = await self._migration.read(request)
            if page is None:
                raise
            return page

    async def facts(self, thread_id: str) -> ThreadFacts:
        """As `ThreadStore.facts`."""
        try:
            return await self._reading.facts(thread_id)
        except ThreadNotFoundError:
            facts = await self._migration.facts(thread_id)
            if facts is None:
                raise
            return facts

    async def fork(
        self, request: ForkThread, transform: Transform | None = None, progress: Progress = no_progress
    ) -> ForkedThread:
        """As `ThreadStore.fork`: no message passes through us unless a transform wants them.

        A source that is a version 1 snapshot is imported first.
        """
        # Before anything else: by now the source may be gone.
        made = await self._forking.forked(request)
        if made is not None:
            return made
        await self._migration.import_if_needed(request.source_id)
        return await self._forking.fork(request, transform, progress)

    def v1_threads(self) -> AsyncIterator[str]:
        """The ids of all threads that have a version 1 snapshot, taken over or not.

        Raises:
            InvalidConfigError: Nobody said where they lie.
        """
        return self._migration.threads()

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
        return await self._reading.facts(thread_id)

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
        for _ in range(_HYDRATE_TRIES):
            version = await self.hot.save_slice(thread_id, epoch, data, expected_version)
            if version is not None:
                return version
            await self._opening.hydrate(thread_id, epoch)
        raise _unsteady(thread_id)

    async def delete(self, thread_id: str, epoch: int) -> None:
        """As `ThreadStore.delete`: leaves a tombstone in the archive, where there was anything."""
        if await self._is_known(thread_id):
            await self.upkeep.delete(thread_id, epoch)

    async def _is_known(self, thread_id: str) -> bool:
        if self._legacy or await self.hot.header(thread_id) is not None:
            return True
        async for _ in self.blobs.list(self.layout.thread(thread_id)):
            return True
        return False

    async def hydrate(self, thread_id: str, epoch: int, progress: Progress = no_progress) -> HotHeader | None:
        """As `ThreadStore.hydrate`: the newest part; older pages are read where they lie."""
        return await self._opening.hydrate(thread_id, epoch, progress)

    async def hydrate_whole(self, thread_id: str, epoch: int, progress: Progress = no_progress) -> HotHeader:
        """Install every message, not only the newest part."""
        return await self._opening.hydrate(thread_id, epoch, progress, back_to=0)

    async def flush(self, request: FlushThread, progress: Progress = no_progress) -> FlushReceipt:
        """As `ThreadStore.flush`."""
        if request.closes:
            await self.hot.close_epoch(request.thread_id, request.epoch)
        return await self._flushing.flush(request, progress)

    async def archive_step(self, step: StepAppend, appended: Appended) -> FlushReceipt:
        """As `ThreadStore.archive_step`."""
        receipt = await self._flushing.archive_step(step, appended)
        if receipt.status is FlushStatus.ARCHIVED and receipt.segments > DIRECT_MAX and step.commits:
            await self._tidy(step.thread_id)
        return receipt

    async def confirm_step(self, step: StepAppend, appended: Appended) -> None:
        """As `ThreadStore.confirm_step`: one look at the manifest, and the record stays what it is."""
        if appended.header.archived >= step.head.position:
            await self._flushing.confirm(step, appended)

    async def confirm_head(self, thread_id: str, epoch: int, head: Head) -> None:
        """As `ThreadStore.confirm_head`: one look at the manifest."""
        await self._flushing.confirm_head(thread_id, epoch, head)

    async def _tidy(self, thread_id: str) -> None:
        try:
            await self.upkeep.compact(thread_id, max_bytes=_MERGE_IN_STEP)
        except (HelixError, StoreUnavailableError) as error:
            # The step is archived; the maintenance worker tries again.
            logger.warning("thread %s: compaction put off: %s", thread_id, type(error).__name__)

    async def evict(self, thread_id: str, epoch: int) -> str:
        """As `ThreadStore.evict`; a copy that the archive has left behind goes, too."""
        outcome = await self._evict(thread_id, epoch)
        # Mostly the last that a worker has to do with a thread for long.
        self._archive.forget(thread_id)
        self._windows.forget(thread_id)
        return outcome

    async def _evict(self, thread_id: str, epoch: int) -> str:
        for stored in (self._archive.remembered(thread_id), None):
            known = stored or await self._archive.manifest(thread_id)
            if known.manifest.epoch == epoch:
                archived: Archived = known.manifest.archived
                outcome = await self.hot.evict(thread_id, epoch, archived, warm_ttl=self._warm_ttl)
                if outcome is not Eviction.NEWER:
                    return outcome
                if stored is None:
                    return await self._drop_rolled_back(thread_id, epoch, archived)
            elif known.manifest.epoch > epoch and stored is None:
                return await self._drop_leftover(thread_id, epoch)
        return Eviction.NEWER

    async def _drop_rolled_back(self, thread_id: str, epoch: int, archived: Archived) -> str:
        """Drop a copy of an earlier time of this epoch: Redis was restored after the thread was archived.

        A session that runs replaces such a copy with its next step.  Of a session that has ended nobody else
        would: it would stay for ever.
        """
        header = await self.hot.header(thread_id)
        if header is None or header.epoch != epoch or not _is_earlier(header, archived):
            return Eviction.NEWER
        # Compared once more in the store: what has been written meanwhile stays.
        seen = Archived(header.head, header.committed, header.slice_version, header.size)
        return await self.hot.evict(thread_id, epoch, seen)

    async def _drop_leftover(self, thread_id: str, epoch: int) -> str:
        """Nobody may write under this epoch any more, and the open that followed took what it held."""
        try:
            await self.hot.drop(thread_id, epoch)
        except FencedError:
            return Eviction.NEWER
        return Eviction.DROPPED


def _is_earlier(header: HotHeader, archived: Archived) -> bool:
    """Whether the archive has all that this copy has, and more."""
    mine = (header.head.position, header.committed, header.slice_version)
    theirs = (archived.head.position, archived.committed, archived.slice_version)
    return mine != theirs and all(one <= other for one, other in zip(mine, theirs, strict=True))


def _unsteady(thread_id: str) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"thread {thread_id!r}: dropped from the hot tier as often as it was made hot; is it short of memory?"
    )
