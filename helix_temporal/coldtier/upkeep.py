"""Upkeep of one thread's archive: compaction, audit, and garbage collection.

Two rules of the collection.  Immutable objects (segments, indexes, states) need no clock: they are named by
the generation of the manifest that they are written for, and a collection raises it before it deletes.
Payloads, whose names are in workflow histories, and objects where there is no manifest at all are let lie
until they have been old for a long time by the store's own clock.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from helix_temporal.blobs import BlobInfo
from helix_temporal.coldtier.archive import UNBOUNDED, Archive, Stored, Traffic, retry_on_change
from helix_temporal.coldtier.audit import Audits
from helix_temporal.coldtier.format import Manifest, payload_position, thread_id_of
from helix_temporal.coldtier.plan import (
    CommitPlan,
    find_mergeable_run,
    plan_index,
    plan_merge,
    split_direct_segments,
)
from helix_temporal.errors import ArchiveCorruptError, HelixError, StoreUnavailableError
from helix_temporal.models.ids import decode_id
from helix_temporal.models.maintenance import ABANDONED_AFTER
from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.stores.protocols.hot import HotTier
from helix_temporal.stores.protocols.threads import (
    ArchivedThread,
    Audit,
    Maintenance,
    Progress,
    no_progress,
)
from helix_temporal.stores.threads.fences import Fence


class Garbage:
    """Finds and deletes what a thread's archive does not need."""

    def __init__(self, hot: HotTier, archive: Archive) -> None:
        self._hot, self._archive = hot, archive

    async def collect_garbage(
        self,
        thread_id: str,
        progress: Progress = no_progress,
        *,
        abandoned_after: float = ABANDONED_AFTER,
        buried: bool = False,
    ) -> Maintenance:
        """As `ArchiveUpkeep.collect_garbage`; ``buried`` spares nothing of a thread that was just deleted.

        List first, then read the manifest, then raise its generation by a swap on that very etag: a
        commit before the swap is in the manifest that was read, one after it names new objects by
        the new generation.
        """

        async def claim_garbage() -> list[BlobInfo] | None:
            listed = [
                info async for info in self._archive.blobs.list(self._archive.layout.thread_prefix(thread_id))
            ]
            stored = await self._archive.read_manifest(thread_id)
            garbage = await self._find_garbage(listed, stored.manifest, abandoned_after, buried=buried)
            return garbage if not garbage or await self._raise_generation(stored) else None

        garbage = await retry_on_change(thread_id, claim_garbage, failed="garbage not collected")
        for number, info in enumerate(garbage):
            await self._archive.blobs.delete(info.key)
            progress("delete", number, info.size)
        size = sum(info.size for info in garbage)
        return Maintenance(thread_id, objects_deleted=len(garbage), bytes_deleted=size)

    async def has_garbage(
        self, listed: Sequence[BlobInfo], manifest: Manifest, abandoned_after: float
    ) -> bool:
        """Whether a collection would delete something, of a listing from before the manifest was read."""
        return bool(await self._find_garbage(listed, manifest, abandoned_after, buried=False))

    async def _find_garbage(
        self, listed: Sequence[BlobInfo], manifest: Manifest, abandoned_after: float, *, buried: bool
    ) -> list[BlobInfo]:
        named = await self._list_named_keys(manifest)
        garbage: list[BlobInfo] = []
        kept: list[BlobInfo] = []
        for info in listed:
            if info.key not in named:
                (kept if not buried and _may_be_wanted(info.key, manifest) else garbage).append(info)
        if kept and manifest.committed == manifest.head.position:
            garbage += await self._find_abandoned(kept, listed, manifest, abandoned_after)
        return garbage

    async def _find_abandoned(
        self, kept: Sequence[BlobInfo], listed: Sequence[BlobInfo], manifest: Manifest, after: float
    ) -> Sequence[BlobInfo]:
        """Objects of a thread that has been idle for long, and that no reader needs."""
        header = await self._hot.read_header(manifest.thread_id)
        if header is not None and not header.deleted:
            return ()
        now = await self._archive.tell_time()
        own = self._archive.layout.manifest_key(manifest.thread_id)

        def is_old(info: BlobInfo) -> bool:
            return now is not None and info.modified is not None and now - info.modified > after

        if not all(is_old(info) for info in listed if info.key == own):
            return ()
        if manifest.version == 0 and not all(map(is_old, kept)):
            return ()  # a fork or a first open may be under way
        return [info for info in kept if is_old(info)]

    async def _list_named_keys(self, manifest: Manifest) -> set[str]:
        layout, thread_id = self._archive.layout, manifest.thread_id
        named = {layout.manifest_key(thread_id)}
        named |= {layout.segment_key(thread_id, ref) for ref in await self._archive.list_segments(manifest)}
        if manifest.index is not None:
            named.add(layout.index_key(thread_id, manifest.index))
        if manifest.slice_object:
            named.add(layout.slice_key(thread_id, manifest.slice_object))
        return named

    async def _raise_generation(self, stored: Stored) -> bool:
        """Whether the swap succeeded for certain.

        Where there is no thread, the manifest that is written says so: version 0, as if it were not there.
        A fork that copied segments before finds another generation and copies them again.
        """
        raised = stored.manifest.make_next(self._archive.make_nonce(), gen=stored.manifest.gen + 1)
        if stored.manifest.version == 0:
            raised = replace(raised, version=0)
        return await self._archive.try_commit(self._archive.plan_manifest_only(raised), stored)


def _may_have_work(manifest_key: str, objects: Sequence[BlobInfo], since: float) -> bool:
    """Whether there may be something to do for a thread that there was not at a time.

    What a flush, a fork or a compaction left when it died was written when it died.  Only payloads, and what
    has no manifest, become garbage by their age.
    """
    return (
        any(info.modified is None or info.modified >= since for info in objects)
        or all(info.key != manifest_key for info in objects)
        or any(info.key.startswith(f"{manifest_key.removesuffix('manifest')}payload/") for info in objects)
    )


def _may_be_wanted(key: str, manifest: Manifest) -> bool:
    """Whether something that no manifest names may yet be asked for, or come to be named."""
    if manifest.version == 0:
        return True
    # Until its step is committed a payload may be read.
    position = payload_position(key)
    return position is not None and (manifest.deleted or position >= manifest.committed)


class _Work(NamedTuple):
    """What there is to do for a thread with so many direct segments."""

    segments: int
    merges: bool
    collects: bool


class Upkeep:
    """The maintenance part of the tiered thread store."""

    def __init__(self, hot: HotTier, archive: Archive) -> None:
        self._hot, self._archive = hot, archive
        self._garbage = Garbage(hot, archive)
        self._audits = Audits(hot, archive)

    async def compact(
        self, thread_id: str, progress: Progress = no_progress, *, max_bytes: int = UNBOUNDED
    ) -> Maintenance:
        """Merge small segments and move the oldest into the index, each merge by its own swap.

        ``max_bytes`` bounds the packed bytes of one merge; larger ones are left for another time.
        A concurrent commit makes a merge fail harmlessly; it is planned again.
        """
        traffic, listing = Traffic(), max_bytes == UNBOUNDED
        before = (await self._archive.read_manifest(thread_id)).manifest

        async def merge_once() -> tuple[Manifest, bool] | None:
            """The manifest, and whether there may be more to merge."""
            nonlocal listing
            stored = await self._archive.read_manifest(thread_id)
            plan = await self._plan_next_merge(stored.manifest, max_bytes, progress, listing=listing)
            if plan is None:
                return stored.manifest, False
            if not await self._archive.try_commit(plan, stored, traffic, progress):
                return None
            listing = listing or plan.manifest.index != stored.manifest.index
            return plan.manifest, True

        manifest, goes_on = before, True
        while goes_on:
            manifest, goes_on = await retry_on_change(thread_id, merge_once, failed="not compacted")
        return Maintenance(
            thread_id,
            segments_before=len(before.segments),
            segments_after=len(manifest.segments),
            uploaded=traffic.uploaded,
        )

    async def _plan_next_merge(
        self, manifest: Manifest, max_bytes: int, progress: Progress, *, listing: bool
    ) -> CommitPlan | None:
        """The next merge; ``listing`` looks for one among the indexed segments, too."""
        nonce, key, head = self._archive.make_nonce(), self._archive.key, manifest.head.position
        run = find_mergeable_run(manifest.segments, head, max_bytes)
        if run is not None:
            messages = await self._archive.read_segments(
                manifest.thread_id, manifest.segments[slice(*run)], progress
            )
            return await asyncio.to_thread(plan_merge, manifest, run, messages, nonce=nonce, key=key)
        moved, kept = split_direct_segments(manifest)
        if not moved and not listing:
            return None
        listed = (*await self._archive.read_index(manifest), *moved)
        run = find_mergeable_run(listed, head, max_bytes)
        if run is None and not moved:
            return None
        messages = (
            await self._archive.read_segments(manifest.thread_id, listed[slice(*run)], progress)
            if run
            else []
        )
        return await asyncio.to_thread(
            plan_index, manifest, listed, kept, run=run, messages=messages, nonce=nonce, key=key
        )

    async def collect_garbage(
        self, thread_id: str, progress: Progress = no_progress, *, abandoned_after: float = ABANDONED_AFTER
    ) -> Maintenance:
        """As `ArchiveUpkeep.collect_garbage`."""
        return await self._garbage.collect_garbage(thread_id, progress, abandoned_after=abandoned_after)

    async def delete(self, thread_id: str, epoch: int) -> None:
        """As `ThreadStore.delete`: a tombstone first, then everything else."""

        async def bury() -> bool | None:
            stored = await self._archive.read_manifest(thread_id)
            Fence.of(stored.manifest).check_not_replaced(epoch)
            return stored.manifest.deleted or await self._write_tombstone(stored, epoch) or None

        await retry_on_change(thread_id, bury, failed="not deleted")
        await self._hot.drop(thread_id, epoch)
        await self._garbage.collect_garbage(thread_id, buried=True)

    async def _write_tombstone(self, stored: Stored, epoch: int) -> bool:
        old = stored.manifest
        tombstone = replace(
            Manifest(old.thread_id), version=old.version + 1, nonce=self._archive.make_nonce(), epoch=epoch,
            owner=old.owner, closed=True, born=old.born, gen=old.gen + 1, deleted=True, legacy=old.legacy,
            head=EMPTY,
        )  # fmt: skip
        return await self._archive.try_commit(self._archive.plan_manifest_only(tombstone), stored)

    async def keep(
        self,
        thread: ArchivedThread,
        progress: Progress = no_progress,
        *,
        abandoned_after: float = ABANDONED_AFTER,
    ) -> Maintenance:
        """As `ArchiveUpkeep.keep`."""
        if thread.damage:
            raise ArchiveCorruptError(thread.damage)

        async def find_work(manifest: Manifest) -> _Work:
            if not await self._is_compact(manifest):
                return _Work(len(manifest.segments), merges=True, collects=True)
            garbage = await self._garbage.has_garbage(thread.objects, manifest, abandoned_after)
            return _Work(len(manifest.segments), merges=False, collects=garbage)

        work = await self._archive.with_manifest(thread.thread_id, find_work)
        count = work.segments
        found = Maintenance(thread.thread_id, segments_before=count, segments_after=count)
        if not work.collects:
            return found
        if work.merges:
            found = await self.compact(thread.thread_id, progress)
        collected = await self.collect_garbage(thread.thread_id, progress, abandoned_after=abandoned_after)
        return replace(
            found, objects_deleted=collected.objects_deleted, bytes_deleted=collected.bytes_deleted
        )

    async def _is_compact(self, manifest: Manifest) -> bool:
        """Whether `_plan_next_merge` finds nothing; without reading what would be merged."""
        head = manifest.head.position
        if find_mergeable_run(manifest.segments, head, UNBOUNDED) is not None:
            return False
        moved, _ = split_direct_segments(manifest)
        if moved or manifest.index is None:
            return not moved
        return find_mergeable_run(tuple(await self._archive.read_index(manifest)), head, UNBOUNDED) is None

    async def tell_time(self) -> float | None:
        """As `ArchiveUpkeep.tell_time`."""
        return await self._archive.tell_time()

    async def list_archived(self, part: int, since: float | None = None) -> AsyncIterator[ArchivedThread]:
        """As `ArchiveUpkeep.list_archived`."""
        prefix = self._archive.layout.part_prefix(part)
        found: dict[str, list[BlobInfo]] = {}
        async for info in self._archive.blobs.list(prefix):
            encoded, slash, _ = info.key.removeprefix(prefix).partition("/")
            if slash:
                found.setdefault(encoded, []).append(info)
        for encoded, objects in found.items():
            key = f"{prefix}{encoded}/manifest"
            if since is not None and not _may_have_work(key, objects, since):
                continue
            thread_id, damage = decode_id(encoded), ""
            if thread_id is None and any(info.key == key for info in objects):
                # The key holds a hash of a long id: the object names it.
                thread_id, damage = await self._read_id(key)
            if damage:
                yield ArchivedThread(encoded, tuple(objects), damage)
            elif thread_id is not None and self._archive.layout.manifest_key(thread_id) == key:
                yield ArchivedThread(thread_id, tuple(objects))

    async def _read_id(self, key: str) -> tuple[str | None, str]:
        """Whose manifest it is, or why that cannot be told; neither where it is gone."""
        try:
            blob = await self._archive.blobs.get(key)
        except StoreUnavailableError:
            raise
        except HelixError as error:
            return None, f"{key}, which says whose thread it is, cannot be read: {error}"
        if blob is None:
            return None, ""
        thread_id = thread_id_of(blob.data)
        if thread_id is None or self._archive.layout.manifest_key(thread_id) != key:
            return None, f"{key} does not say whose thread it is"
        return thread_id, ""

    async def audit(
        self,
        thread_id: str,
        progress: Progress = no_progress,
        *,
        objects: Sequence[BlobInfo] | None = None,
        reads_data: bool = True,
    ) -> Audit:
        """As `ArchiveUpkeep.audit`."""
        return await self._audits.audit_thread(thread_id, progress, objects=objects, reads_data=reads_data)
