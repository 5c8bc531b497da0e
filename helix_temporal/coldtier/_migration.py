"""From version 1 and back: one thread at a time, by request."""

from collections.abc import AsyncIterator
from typing import Final

from helix_temporal.coldtier._archive import Archive, Traffic, unclear
from helix_temporal.coldtier._flushing import Flushing, back_off
from helix_temporal.coldtier._legacy import LegacySnapshot, LegacySource
from helix_temporal.coldtier._manifest import Legacy, Manifest
from helix_temporal.coldtier._plan import Log, plan_commit
from helix_temporal.errors import (
    InvalidConfigError,
    StoreUnavailableError,
    ThreadExistsError,
    ThreadNotFoundError,
)
from helix_temporal.models.records import EMPTY, Record, head_after, size_of
from helix_temporal.stores._pages import Bounds, finish_page, trim
from helix_temporal.stores.protocols.hot import NEVER_ARCHIVED, HotTier, PageRange
from helix_temporal.stores.protocols.threads import Page, ReadPage, ThreadFacts

TRIES: Final = 20


class Migration:
    """The version 1 half of the tiered thread store."""

    def __init__(
        self, hot: HotTier, archive: Archive, flushing: Flushing, legacy: LegacySource | None
    ) -> None:
        self._hot, self._archive, self._flushing, self._legacy = hot, archive, flushing, legacy

    async def import_v1(self, thread_id: str, adapter: str = "") -> Manifest:
        """Make a version 1 snapshot the archive of this thread, which nobody has open yet.

        Repeated, it finds what it did.

        Raises:
            ThreadNotFoundError: There is no snapshot.
            ThreadExistsError: The thread has an archive that did not come from it.
            LegacyWriterActiveError: The snapshot changed since it was taken over.
        """
        legacy = self._source()
        for attempt in range(TRIES):
            stored = await self._archive.manifest(thread_id)
            if stored.manifest.legacy is not None and not stored.manifest.deleted:
                await legacy.check_unchanged(stored.manifest.legacy)
                return stored.manifest
            if stored.manifest.version > 0 or await self._hot.header(thread_id) is not None:
                raise ThreadExistsError(f"thread {thread_id!r} exists, or was deleted; nothing was imported")
            old = await legacy.load(thread_id, adapter)
            if old is None:
                raise ThreadNotFoundError(f"thread {thread_id!r} has no version 1 snapshot")
            traffic = Traffic()
            data, name = await self._archive.store_slice(thread_id, stored.manifest.gen, old.slice, traffic)
            plan = plan_commit(
                stored.manifest, Log(None, (), ()), old.records,
                nonce=self._archive.nonce(), key=self._archive.key, committed=len(old.records),
                slice=data, slice_object=name, slice_version=1 if old.slice else 0,
                adapter=old.adapter, legacy=old.origin,
            )  # fmt: skip
            try:
                await self._archive.commit(plan, stored, traffic)
            except Exception as error:
                if not unclear(error):
                    raise
                await back_off(attempt)
                continue
            return plan.manifest
        raise StoreUnavailableError(f"thread {thread_id!r}: not imported in {TRIES} tries")

    def threads(self) -> AsyncIterator[str]:
        """The ids of all threads that have a version 1 snapshot."""
        return self._source().threads()

    async def import_if_needed(self, thread_id: str) -> None:
        """Import a thread that nobody has opened here and that has a version 1 snapshot."""
        if await self._unseen(thread_id) is not None:
            await self.import_v1(thread_id)

    async def _unseen(self, thread_id: str) -> LegacySnapshot | None:
        """The snapshot of a thread that neither tier knows of."""
        if self._legacy is None or (await self._archive.manifest(thread_id)).manifest.version > 0:
            return None
        if await self._hot.header(thread_id) is not None:
            return None
        return await self._legacy.load(thread_id)

    async def facts(self, thread_id: str) -> ThreadFacts | None:
        """As `ThreadStore.facts`, of a snapshot that was not taken over yet; None if there is none."""
        old = await self._unseen(thread_id)
        if old is None:
            return None
        head = head_after(EMPTY, old.records)
        return ThreadFacts(
            thread_id, head, head.position, 0, "", False, False, NEVER_ARCHIVED, old.slice,
            1 if old.slice else 0, old.adapter, size_of(old.records),
        )  # fmt: skip

    async def read(self, request: ReadPage) -> Page | None:
        """As `ThreadStore.read`, of a snapshot that was not taken over yet; None if there is none."""
        old = await self._unseen(request.thread_id)
        if old is None:
            return None
        head = head_after(EMPTY, old.records)
        bounds = Bounds.of(request, head.position, head.position)

        async def fetch(
            start: int, stop: int, limit: int, max_bytes: int, backward: bool
        ) -> tuple[int, tuple[Record, ...]]:
            return trim(start, old.records[start:stop], PageRange(start, stop, limit, max_bytes, backward))

        return await finish_page(request, bounds, fetch, head, head.position)

    async def export_v1(self, thread_id: str, instructions: str | None = None, adapter: str = "") -> Legacy:
        """Write all of a thread's finished turns as a version 1 snapshot; returns its key and etag.

        Messages that came from version 1 are written as they were, others in the envelope of ``adapter``;
        unless it is named, of the thread's, or of its newest row from there.

        Raises:
            ThreadNotFoundError: There is no such thread.
            LegacyWriterActiveError: Another snapshot is there than the one that was taken over.
        """
        legacy = self._source()
        await self._flushing.settle(thread_id)

        async def everything(archive: Manifest) -> tuple[Manifest, list[Record], bytes]:
            records = await self._archive.read(archive, 0, archive.committed)
            return archive, records, await self._archive.slice(archive)

        manifest, records, state = await self._archive.with_manifest(thread_id, everything)
        if manifest.is_absent:
            raise ThreadNotFoundError(f"thread {thread_id!r} was never created, or was deleted")
        written = await legacy.save(
            thread_id, records, state,
            instructions=instructions, adapter=adapter or manifest.adapter, over=manifest.legacy,
        )  # fmt: skip
        await self._remember(thread_id, written)
        return written

    async def _remember(self, thread_id: str, written: Legacy) -> None:
        """Else our own writing would be taken for somebody else's."""
        for attempt in range(TRIES):
            stored = await self._archive.manifest(thread_id)
            if stored.manifest.legacy == written or stored.manifest.is_absent:
                return
            changed = stored.manifest.next(self._archive.nonce(), legacy=written)
            if not await self._archive.committed(self._archive.alone(changed), stored):
                await back_off(attempt)
        raise StoreUnavailableError(f"thread {thread_id!r}: not exported in {TRIES} tries")

    def _source(self) -> LegacySource:
        if self._legacy is None:
            raise InvalidConfigError(
                "no place for version 1 snapshots is configured: set HELIX_READ_V1, or give `legacy`"
            )
        return self._legacy
