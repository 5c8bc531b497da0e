"""Garbage collection of one thread's archive: what no manifest names, and what nobody came back for.

Two rules.  Immutable objects (segments, indexes, states) need no clock: they are named by the generation of
the manifest that they are written for, and a collection raises it before it deletes.  Payloads, whose names
are in workflow histories, and objects where there is no manifest at all are let lie until they have been
old for a long time by the store's own clock.
"""

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from helix_temporal.blobs import BlobInfo
from helix_temporal.coldtier._archive import Archive, SegmentGoneError, Stored, missing
from helix_temporal.coldtier._flushing import back_off
from helix_temporal.coldtier._layout import payload_position
from helix_temporal.coldtier._manifest import Manifest
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.models.maintenance import ABANDONED_AFTER
from helix_temporal.stores.protocols.hot import HotTier
from helix_temporal.stores.protocols.progress import Progress, no_progress
from helix_temporal.stores.protocols.upkeep import Maintenance

TRIES: Final = 20


class Garbage:
    """Finds and deletes what a thread's archive does not need."""

    def __init__(self, hot: HotTier, archive: Archive) -> None:
        self._hot, self._archive = hot, archive

    async def collect(
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
        for attempt in range(TRIES):
            listed = [info async for info in self._archive.blobs.list(self._archive.layout.thread(thread_id))]
            stored = await self._archive.manifest(thread_id)
            try:
                garbage = await self._garbage(listed, stored.manifest, abandoned_after, buried=buried)
            except SegmentGoneError as gone:
                if (await self._archive.manifest(thread_id)).etag == stored.etag:
                    raise missing(thread_id, gone) from gone
                continue
            if not garbage:
                return Maintenance(thread_id)
            if not await self._raise_generation(stored):
                await back_off(attempt)
                continue
            for number, info in enumerate(garbage):
                await self._archive.blobs.delete(info.key)
                progress("delete", number, info.size)
            size = sum(info.size for info in garbage)
            return Maintenance(thread_id, objects_deleted=len(garbage), bytes_deleted=size)
        raise StoreUnavailableError(f"thread {thread_id!r}: garbage not collected in {TRIES} tries")

    async def _garbage(
        self, listed: Sequence[BlobInfo], manifest: Manifest, abandoned_after: float, *, buried: bool
    ) -> list[BlobInfo]:
        named = await self._named(manifest)
        garbage: list[BlobInfo] = []
        held: list[BlobInfo] = []
        for info in listed:
            if info.key not in named:
                (held if not buried and _may_be_wanted(info.key, manifest) else garbage).append(info)
        if held and manifest.committed == manifest.head.position:
            garbage += await self._abandoned(held, listed, manifest, abandoned_after)
        return garbage

    async def _abandoned(
        self, held: Sequence[BlobInfo], listed: Sequence[BlobInfo], manifest: Manifest, after: float
    ) -> Sequence[BlobInfo]:
        """What of a thread that has long been at rest nobody comes back for."""
        header = await self._hot.header(manifest.thread_id)
        if header is not None and not header.deleted:
            return ()
        now = await self._store_time()
        own = self._archive.layout.manifest(manifest.thread_id)

        def is_old(info: BlobInfo) -> bool:
            return now is not None and info.modified is not None and now - info.modified > after

        if not all(is_old(info) for info in listed if info.key == own):
            return ()
        if manifest.version == 0 and not all(map(is_old, held)):
            return ()  # a fork or a first open may be under way
        return [info for info in held if is_old(info)]

    async def _store_time(self) -> float | None:
        """What time it is by the store's clock, the one that its objects were dated by."""
        key = f"{self._archive.layout.probe()}clock/{uuid.uuid4().hex}"
        await self._archive.blobs.put(key, b"")
        try:
            return max([info.modified or 0.0 async for info in self._archive.blobs.list(key)], default=None)
        finally:
            await self._archive.blobs.delete(key)

    async def _named(self, manifest: Manifest) -> set[str]:
        layout, thread_id = self._archive.layout, manifest.thread_id
        named = {layout.manifest(thread_id)}
        named |= {layout.segment(thread_id, ref) for ref in await self._archive.refs(manifest)}
        if manifest.index is not None:
            named.add(layout.index(thread_id, manifest.index))
        if manifest.slice_object:
            named.add(layout.state(thread_id, manifest.slice_object))
        return named

    async def _raise_generation(self, stored: Stored) -> bool:
        """Whether the swap succeeded for certain.

        Where there is no thread, the manifest that is written says so: version 0, as if it were not there.
        A fork that copied segments before finds another generation and copies them again.
        """
        raised = stored.manifest.next(self._archive.nonce(), gen=stored.manifest.gen + 1)
        if stored.manifest.version == 0:
            raised = replace(raised, version=0)
        return await self._archive.committed(self._archive.alone(raised), stored)


def _may_be_wanted(key: str, manifest: Manifest) -> bool:
    """Whether something that no manifest names may yet be asked for, or come to be named."""
    if manifest.version == 0:
        return True
    # Until its step is committed a payload may be read.
    position = payload_position(key)
    return position is not None and (manifest.deleted or position >= manifest.committed)
