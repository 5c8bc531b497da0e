"""Verifies one thread's archive: its structure, and all of its messages, one segment at a time.

Beside live sessions and maintenance nothing may look like damage that is none.  Objects go when they have
been merged, threads are opened, cut and deleted: what seems wrong is looked at again until two looks in a row
have met the same thread.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from helix_temporal.blobs import BlobInfo
from helix_temporal.coldtier.archive import Archive, Stored, retry_on_change
from helix_temporal.coldtier.format import Manifest, SegmentRef
from helix_temporal.coldtier.liveness import check_regressed
from helix_temporal.errors import ArchiveCorruptError
from helix_temporal.models.stored_messages import StoredMessage
from helix_temporal.stores.protocols.hot import HotHeader, HotSnapshot, HotTier
from helix_temporal.stores.protocols.threads import Audit, Progress, no_progress
from helix_temporal.stores.threads.log_check import LogCheck
from helix_temporal.stores.threads.verification import DAMAGE, LOOKS


class _Look(NamedTuple):
    """What one look has found, and which state of the thread it met."""

    audit: Audit
    place: tuple[str | None, str]


class Audits:
    """Verifies threads; changes nothing."""

    def __init__(self, hot: HotTier, archive: Archive) -> None:
        self._hot, self._archive = hot, archive

    async def audit_thread(
        self,
        thread_id: str,
        progress: Progress = no_progress,
        *,
        objects: Sequence[BlobInfo] | None = None,
        reads_data: bool = True,
    ) -> Audit:
        """As `ArchiveUpkeep.audit`."""
        found, before = await self._look(thread_id, progress, objects, reads_data=reads_data), None
        for _ in range(LOOKS - 1):
            if not found.audit.problems or found.place == before:
                break
            before = found.place
            found = await self._look(thread_id, progress, objects, reads_data=reads_data)
        return found.audit

    async def _look(
        self, thread_id: str, progress: Progress, objects: Sequence[BlobInfo] | None, *, reads_data: bool
    ) -> _Look:
        header: HotHeader | None = None
        etag: str | None = None

        async def read_and_check() -> Audit:
            nonlocal etag
            stored = await self._archive.read_manifest(thread_id)
            etag = stored.etag
            return await self._check_archive(stored, header, progress, objects, reads_data=reads_data)

        try:
            # First: an archive that is read later has at least what the hot thread has seen in it.
            header = await self._hot.read_header(thread_id)
            found = await retry_on_change(thread_id, read_and_check, failed="not verified")
        except DAMAGE as error:
            said = f"{type(error).__name__}: {error}"
            found = Audit(thread_id, (said,), is_archived=etag is not None)
        return _Look(found, (etag, "" if header is None else header.place))

    async def _check_archive(
        self,
        stored: Stored,
        header: HotHeader | None,
        progress: Progress,
        objects: Sequence[BlobInfo] | None,
        *,
        reads_data: bool,
    ) -> Audit:
        manifest = stored.manifest
        hot = header if header is not None and not header.deleted else None
        if manifest.deleted:
            return Audit(manifest.thread_id, is_archived=False)
        if hot is not None:
            check_regressed(HotSnapshot(hot, hot.head.position, ()), manifest)
        if manifest.is_absent:
            return Audit(manifest.thread_id, is_archived=False, unarchived=hot.head.position if hot else 0)
        if reads_data:
            problems, size = await self._read_data(manifest, progress)
        else:
            problems, size = (), await self._check_objects(manifest, objects)
        unarchived = hot.head.position - manifest.head.position if hot else 0
        return Audit(manifest.thread_id, problems, max(unarchived, 0), manifest.head.position, size)

    async def _read_data(self, manifest: Manifest, progress: Progress) -> tuple[tuple[str, ...], int]:
        """What is wrong with its messages, and how many bytes of objects were read."""
        await self._archive.read_slice(manifest)
        log, size = LogCheck(manifest.committed), 0
        for ref in await self._archive.list_segments(manifest):
            log.add_messages(await self._archive.read_segments(manifest.thread_id, [ref], progress))
            size += ref.size
        log.add_messages(manifest.inline)
        if not manifest.inline:
            _check_last_message(manifest, log.last)
        return log.find_problems(), size

    async def _check_objects(self, manifest: Manifest, objects: Sequence[BlobInfo] | None) -> int:
        """Check that every object is there with its size; reads those that a listing shows otherwise.

        A listing may be older than the manifest.

        Returns:
            How many bytes of objects were read.
        """
        layout, thread_id = self._archive.layout, manifest.thread_id
        if objects is None:
            objects = [each async for each in self._archive.blobs.list(layout.thread_prefix(thread_id))]
        listed = {each.key: each.size for each in objects}
        doubtful = [
            ref
            for ref in await self._archive.list_segments(manifest)
            if listed.get(layout.segment_key(thread_id, ref)) != ref.size
        ]
        for ref in doubtful:
            await self._archive.read_segments(thread_id, [ref])
        name = manifest.slice_object
        if name and layout.slice_key(thread_id, name) not in listed:
            await self._archive.read_slice(manifest)
        return _sum_sizes(doubtful)


def _sum_sizes(refs: Iterable[SegmentRef]) -> int:
    return sum(ref.size for ref in refs)


def _check_last_message(manifest: Manifest, last: StoredMessage | None) -> None:
    """Compare the newest message with the one that the head names; of inline ones a manifest's reader does.

    Raises:
        ArchiveCorruptError: They differ.
    """
    if (last.id if last else "") != manifest.head.last_id:
        raise ArchiveCorruptError(
            f"thread {manifest.thread_id!r}: the last message is not the one that the manifest's head names"
        )
