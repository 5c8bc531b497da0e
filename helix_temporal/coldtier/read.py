"""Reads: pages from wherever the messages are, without making a thread hot."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from helix_temporal.coldtier.archive import Archive, retry_on_change
from helix_temporal.coldtier.format import Manifest, SegmentRef
from helix_temporal.coldtier.liveness import is_newest
from helix_temporal.errors import HelixError
from helix_temporal.models.stored_messages import Head, StoredMessage, size_of
from helix_temporal.stores.paging import Bounds, Stretch, check_page, finish_page, trim_page
from helix_temporal.stores.protocols.hot import NEVER_ARCHIVED, HotHeader, HotTier, PageRange
from helix_temporal.stores.protocols.threads import ReadPage, ThreadFacts, ThreadPage
from helix_temporal.stores.threads.opening import thread_not_found_error

ARCHIVE_SECONDS: Final = 1.0
"""So long a reader who could do without the archive waits for what it says."""


class _MovedError(Exception):
    """The hot thread is another one than when the page was begun: begin again."""


@dataclass(slots=True)
class _Source:
    """Where a page is read from; a hot thread's archive is looked up only once it is needed."""

    header: HotHeader | None
    archive: Manifest | None = None


class TieredReads:
    """The read part of the tiered thread store."""

    def __init__(self, hot: HotTier, archive: Archive) -> None:
        self._hot, self._archive = hot, archive

    async def read_facts(self, thread_id: str) -> ThreadFacts:
        """As `ThreadStore.read_facts`."""

        async def read() -> ThreadFacts:
            header = await self._hot.read_header(thread_id)
            archive = (await self._archive.read_manifest(thread_id)).manifest
            if header is not None and is_newest(header, archive):
                archived = NEVER_ARCHIVED if archive.is_absent else archive.head.position
                return ThreadFacts.of_hot(header, archived)
            if archive.is_absent:
                raise thread_not_found_error(thread_id, deleted=archive.deleted)
            return await self._cold_facts(archive)

        return await retry_on_change(thread_id, read, failed="not read")

    async def _cold_facts(self, archive: Manifest) -> ThreadFacts:
        thread_id = archive.thread_id
        return ThreadFacts(
            thread_id, archive.head, archive.committed, archive.epoch, archive.owner, archive.closed,
            False, archive.head.position, await self._archive.read_slice(archive), archive.slice_version,
            archive.adapter, archive.size,
        )  # fmt: skip

    async def read_page(self, request: ReadPage) -> ThreadPage:
        """As `ThreadStore.read`: one page never mixes what was there before and after an open."""
        check_page(request)
        trusting = True

        async def read() -> ThreadPage | None:
            nonlocal trusting
            source, trusting = await self._find_source(request, trusting=trusting), False
            try:
                return await self._read_page_from(request, source)
            except _MovedError:
                return None

        return await retry_on_change(request.thread_id, read, failed="opened again and again: not read")

    async def _find_source(self, request: ReadPage, *, trusting: bool) -> "_Source":
        thread_id = request.thread_id
        header = await self._hot.read_header(thread_id)
        hot = header if trusting and header is not None and not header.deleted else None
        if hot is not None and _has_range(hot, request):
            return _Source(hot)
        # A read without an end falls back to the hot thread if the archive does not answer.
        instead = hot if request.stop is None else None
        try:
            async with asyncio.timeout(ARCHIVE_SECONDS if instead else None):
                archive = (await self._archive.read_manifest(thread_id)).manifest
        except (HelixError, TimeoutError):
            if instead is None:
                raise
            return _Source(instead)
        if header is not None and is_newest(header, archive):
            return _Source(header, archive)
        if archive.is_absent:
            raise thread_not_found_error(thread_id)
        return _Source(None, archive)

    async def _read_page_from(self, request: ReadPage, source: "_Source") -> ThreadPage:
        if source.header is not None and request.start < source.header.base.position:
            await self._load_archive(request.thread_id, source)
        header, archive = source.header, source.archive or Manifest(request.thread_id)
        head = header.head if header else archive.head
        committed = header.committed if header else archive.committed
        bounds = Bounds.of(request, head.position, committed)

        async def fetch_stretch(start: int, stop: int, limit: int, max_bytes: int, backward: bool) -> Stretch:
            wanted = PageRange(start, stop, limit, max_bytes, backward)
            return await self._fetch_stretch(request.thread_id, wanted, source)

        return await finish_page(request, bounds, fetch_stretch, head, committed)

    async def _load_archive(self, thread_id: str, source: "_Source") -> Manifest:
        """The archive behind the hot thread, if that is still the thread."""
        if source.archive is None:
            source.archive = (await self._archive.read_manifest(thread_id)).manifest
            if source.header is None or not is_newest(source.header, source.archive):
                raise _MovedError
        return source.archive

    async def _fetch_stretch(self, thread_id: str, wanted: PageRange, source: "_Source") -> Stretch:
        header = source.header
        if header is not None and wanted.start >= header.base.position:
            return await self._hot_stretch(header, wanted)
        archive = await self._load_archive(thread_id, source)
        if header is None or wanted.stop <= header.base.position:
            return await self._cold_stretch(archive, wanted)
        older = PageRange(wanted.start, header.base.position, wanted.limit, wanted.max_bytes, wanted.backward)
        newer = PageRange(header.base.position, wanted.stop, wanted.limit, wanted.max_bytes, wanted.backward)
        first = await (
            self._hot_stretch(header, newer) if wanted.backward else self._cold_stretch(archive, older)
        )
        full = newer if wanted.backward else older
        if len(first[1]) < full.stop - full.start:
            return first
        left = wanted.limit - len(first[1]), wanted.max_bytes - size_of(first[1])
        if left[0] <= 0 or left[1] <= 0:
            return first
        if wanted.backward:
            rest = await self._cold_stretch(archive, PageRange(older.start, older.stop, *left, backward=True))
            return rest[0], (*rest[1], *first[1])
        rest = await self._hot_stretch(header, PageRange(newer.start, newer.stop, *left))
        return first[0], (*first[1], *rest[1])

    async def _hot_stretch(self, header: HotHeader, wanted: PageRange) -> Stretch:
        snapshot = await self._hot.read_page(header.thread_id, wanted)
        if (
            snapshot is None
            or snapshot.header.epoch != header.epoch
            or snapshot.header.base.position > wanted.start
            or snapshot.header.head.position < wanted.stop
        ):
            # Dropped, opened (and perhaps cut), made hot again in part, or rolled back while we read.
            raise _MovedError
        return snapshot.first, snapshot.messages

    async def _cold_stretch(self, archive: Manifest, wanted: PageRange) -> Stretch:
        """Segment by segment, so that a page never loads more of the thread than it gives."""
        start, stop = wanted.start, min(wanted.stop, archive.head.position)
        if start >= stop:
            return start, ()
        # A page may want half of a large segment: messages beyond its limit are not decoded.
        if wanted.backward:
            start = max(start, stop - wanted.limit)
        else:
            stop = min(stop, start + wanted.limit)
        parts = _split_at_segments(await self._archive.list_segments(archive, start), start, stop)
        found: list[StoredMessage] = []
        first = stop if wanted.backward else start
        for low, high in reversed(parts) if wanted.backward else parts:
            messages = await self._archive.read_messages(archive, low, high)
            found = [*messages, *found] if wanted.backward else [*found, *messages]
            first = low if wanted.backward else first
            if len(found) >= wanted.limit or size_of(found) > wanted.max_bytes:
                break
        return trim_page(first, found, wanted)

    async def read_older(
        self, thread_id: str, stop: Head, limit: int, max_bytes: int
    ) -> tuple[StoredMessage, ...]:
        """Archived messages just before ``stop``, newest ones that fit."""
        wanted = PageRange(0, stop.position, limit, max_bytes, backward=True)

        async def read_before(archive: Manifest) -> tuple[StoredMessage, ...]:
            return (
                ()
                if archive.head.position < stop.position
                else (await self._cold_stretch(archive, wanted))[1]
            )

        return await self._archive.with_manifest(thread_id, read_before)

    async def read_older_ids(self, thread_id: str, stop: Head, count: int) -> tuple[str, ...]:
        """Ids of the ``count`` archived messages before ``stop``, whatever they weigh.

        Segment by segment, so that their bodies are never in memory all at once.
        """
        start = max(0, stop.position - count)

        async def read_before(archive: Manifest) -> tuple[str, ...]:
            if archive.head.position < stop.position:
                return ()
            found: list[str] = []
            for low, high in _split_at_segments(
                await self._archive.list_segments(archive, start), start, stop.position
            ):
                found += [message.id for message in await self._archive.read_messages(archive, low, high)]
            return tuple(found)

        return await self._archive.with_manifest(thread_id, read_before)


def _has_range(header: HotHeader, request: ReadPage) -> bool:
    """Whether the hot thread has all that is asked for.

    Of one epoch also if it went back: only its end can be missing.
    """
    if request.epoch is not None and request.epoch != header.epoch:
        return False
    end = header.committed if request.committed_only else header.head.position
    return request.stop is not None and request.stop <= end


def _split_at_segments(refs: Sequence[SegmentRef], start: int, stop: int) -> list[tuple[int, int]]:
    """The range cut at segment borders."""
    borders = [ref.stop for ref in refs if start < ref.stop < stop]
    return list(zip([start, *borders], [*borders, stop], strict=True))
