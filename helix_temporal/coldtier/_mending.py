"""Damaged hot records are replaced by what the archive holds."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from helix_temporal.coldtier._archive import Archive
from helix_temporal.coldtier._flushing import Backlog, Flushing
from helix_temporal.coldtier._manifest import Manifest
from helix_temporal.errors import ConflictError, StoreCorruptError
from helix_temporal.models.records import Head, Record
from helix_temporal.stores.protocols.hot import (
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
from helix_temporal.stores.protocols.threads import FlushThread

logger = logging.getLogger(__name__)

T = TypeVar("T")


class MendedHot:
    """`HotTier` around another one: a call that finds a record damaged drops the record and is made again.

    The record then comes back from the archive, as one does that the server lost.  Only a record that the
    archive holds whole is dropped.  What is not archived yet is archived first; where that cannot be read,
    the record stays as it is, and the error is the caller's.

    Raises (every method):
        StoreCorruptError: The record is damaged, and holds something that the archive lacks.
    """

    def __init__(self, inner: HotTier, archive: Archive) -> None:
        self._inner, self._archive = inner, archive
        # Over the damaged record itself: a flush in here must not lead here again.
        self._flushing = Flushing(inner, archive, Backlog())

    async def header(self, thread_id: str) -> HotHeader | None:
        """See `HotTier.header`."""
        return await self._sound(thread_id, lambda: self._inner.header(thread_id))

    async def snapshot(self, thread_id: str, since: int) -> HotSnapshot | None:
        """See `HotTier.snapshot`."""
        return await self._sound(thread_id, lambda: self._inner.snapshot(thread_id, since))

    async def page(self, thread_id: str, wanted: PageRange) -> HotSnapshot | None:
        """See `HotTier.page`."""
        return await self._sound(thread_id, lambda: self._inner.page(thread_id, wanted))

    async def step_view(
        self, thread_id: str, head: Head, *, after: int, limit: int, max_bytes: int, ids: int
    ) -> StepView | None:
        """See `HotTier.step_view`."""
        return await self._sound(
            thread_id,
            lambda: self._inner.step_view(
                thread_id, head, after=after, limit=limit, max_bytes=max_bytes, ids=ids
            ),
        )

    async def append(self, step: StepAppend) -> Appended | None:
        """See `HotTier.append`."""
        return await self._sound(step.thread_id, lambda: self._inner.append(step))

    async def rebase(self, change: Rebase) -> HotHeader | None:
        """See `HotTier.rebase`."""
        return await self._sound(change.header.thread_id, lambda: self._inner.rebase(change))

    async def install(self, header: HotHeader, records: Sequence[Record], *, replace: bool) -> HotHeader:
        """See `HotTier.install`."""
        return await self._sound(
            header.thread_id, lambda: self._inner.install(header, records, replace=replace)
        )

    async def evict(
        self, thread_id: str, epoch: int, archived: Archived, *, warm_ttl: float | None = None
    ) -> Eviction:
        """See `HotTier.evict`."""
        return await self._sound(
            thread_id, lambda: self._inner.evict(thread_id, epoch, archived, warm_ttl=warm_ttl)
        )

    async def trim(self, thread_id: str, epoch: int, archived: Head, keep_from: int) -> HotHeader | None:
        """See `HotTier.trim`."""
        return await self._sound(thread_id, lambda: self._inner.trim(thread_id, epoch, archived, keep_from))

    async def close_epoch(self, thread_id: str, epoch: int) -> None:
        """See `HotTier.close_epoch`."""
        await self._sound(thread_id, lambda: self._inner.close_epoch(thread_id, epoch))

    async def save_slice(self, thread_id: str, epoch: int, data: bytes, expected_version: int) -> int | None:
        """See `HotTier.save_slice`."""
        return await self._sound(
            thread_id, lambda: self._inner.save_slice(thread_id, epoch, data, expected_version)
        )

    async def drop(self, thread_id: str, epoch: int) -> None:
        """See `HotTier.drop`."""
        await self._sound(thread_id, lambda: self._inner.drop(thread_id, epoch))

    async def drop_damaged(self, thread_id: str, archived: Archived, slice_: bytes) -> bool:
        """See `HotTier.drop_damaged`."""
        return await self._inner.drop_damaged(thread_id, archived, slice_)

    def scan(self) -> AsyncIterator[str]:
        """See `HotTier.scan`."""
        return self._inner.scan()

    async def check(self) -> None:
        """See `HotTier.check`."""
        await self._inner.check()

    async def close(self) -> None:
        """See `HotTier.close`."""
        await self._inner.close()

    async def _sound(self, thread_id: str, call: Callable[[], Awaitable[T]]) -> T:
        try:
            return await call()
        except StoreCorruptError as error:
            if not await self._drop(thread_id):
                raise
            logger.warning(
                "thread %s: its hot record was dropped, to come from the archive: %s", thread_id, error
            )
        return await call()

    async def _drop(self, thread_id: str) -> bool:
        """Drop a damaged record, if the archive holds it; whether it is gone."""
        archive = (await self._archive.manifest(thread_id)).manifest
        if archive.is_absent:
            return False
        try:
            if await self._evicted(archive):
                return True
        except StoreCorruptError:
            slice_ = await self._archive.slice(archive)
            return await self._inner.drop_damaged(thread_id, archive.archived, slice_)
        return await self._archived_and_evicted(archive)

    async def _evicted(self, archive: Manifest) -> bool:
        outcome = await self._inner.evict(archive.thread_id, archive.epoch, archive.archived)
        return outcome is not Eviction.NEWER

    async def _archived_and_evicted(self, archive: Manifest) -> bool:
        """The damage may lie below what the archive lacks: then that can be read and archived."""
        thread_id = archive.thread_id
        try:
            rest = await self._inner.snapshot(thread_id, archive.head.position)
            if rest is None:
                return True
            request = FlushThread(thread_id, rest.header.epoch, closes=rest.header.closed, ends=False)
            await self._flushing.flush(request, first_try=_beyond(rest, archive))
        except (StoreCorruptError, ConflictError):
            return False
        return await self._evicted((await self._archive.manifest(thread_id)).manifest)


def _beyond(rest: HotSnapshot, archive: Manifest) -> HotSnapshot | None:
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
