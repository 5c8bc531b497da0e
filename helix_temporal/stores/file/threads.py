"""Hot threads on the local disk: one machine, a few processes, no server."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

from helix_temporal.models.records import Head, Record
from helix_temporal.stores.file._documents import DocumentChange, Documents
from helix_temporal.stores.file._format import Parts
from helix_temporal.stores.file._thread_part import THREAD, expired, thread_in, thread_part
from helix_temporal.stores.protocols.hot import (
    Appended,
    Archived,
    Eviction,
    HotHeader,
    HotSnapshot,
    PageRange,
    Rebase,
    StepAppend,
    StepView,
)
from helix_temporal.stores.threads import operations as ops
from helix_temporal.stores.threads.operations import HeldThread, OperationOutcome

T = TypeVar("T")


class FileThreads:
    """`HotTier` over the part ``thread`` of one document a thread.

    What a method returns is on the disk and survives a power cut.  A write costs as much as the thread
    is long, and so does the first read after another process wrote: for development, single machines
    and threads of some MiB.

    Args:
        documents: Shared with the sessions of the same ids.
        clock: Seconds since 1970; what expires and what is stamped goes by it.

    Raises (every method): what `Documents` raises.
    """

    def __init__(self, documents: Documents, *, clock: Callable[[], float] = time.time) -> None:
        self._documents = documents
        self._clock = clock

    async def expires_in(self, thread_id: str) -> float | None:
        """Seconds until the record expires, None if it never does or is not there."""
        thread = await self._find(thread_id)
        return None if thread is None or thread.expires_at is None else thread.expires_at - self._clock()

    # -- reads

    async def header(self, thread_id: str) -> HotHeader | None:
        """See `HotTier.header`."""
        thread = await self._find(thread_id)
        return None if thread is None else thread.header

    async def snapshot(self, thread_id: str, since: int) -> HotSnapshot | None:
        """See `HotTier.snapshot`."""
        thread = await self._find(thread_id)
        return None if thread is None else ops.snapshot(thread, since)

    async def page(self, thread_id: str, wanted: PageRange) -> HotSnapshot | None:
        """See `HotTier.page`."""
        thread = await self._find(thread_id)
        return None if thread is None else ops.page(thread, wanted)

    async def step_view(
        self, thread_id: str, head: Head, *, after: int, limit: int, max_bytes: int, ids: int
    ) -> StepView | None:
        """See `HotTier.step_view`."""
        if (thread := await self._find(thread_id)) is None:
            return None
        return ops.step_view(thread, head, after=after, limit=limit, max_bytes=max_bytes, ids=ids)

    async def scan(self) -> AsyncIterator[str]:
        """See `HotTier.scan`; a damaged document is named as well, as far as its file's name tells.

        Removes what has expired.
        """
        async for listed in self._documents.entries():
            if listed.problem is None and THREAD not in listed.headers:
                continue
            if listed.problem is None and expired(listed.headers[THREAD], self._clock()):
                await self._documents.change(listed.id, self._without_expired)
                continue
            yield listed.id

    # -- writes

    async def append(self, step: StepAppend) -> Appended | None:
        """See `HotTier.append`."""
        return await self._change(step.thread_id, lambda held, now: ops.append(held, step, now))

    async def rebase(self, change: Rebase) -> HotHeader | None:
        """See `HotTier.rebase`."""
        return await self._change(change.header.thread_id, lambda held, now: ops.rebase(held, change, now))

    async def install(self, header: HotHeader, records: Sequence[Record], *, replace: bool) -> HotHeader:
        """See `HotTier.install`."""
        return await self._change(
            header.thread_id,
            lambda held, now: ops.install(held, header, records, replace=replace, now=now),
        )

    async def evict(
        self, thread_id: str, epoch: int, archived: Archived, *, warm_ttl: float | None = None
    ) -> Eviction:
        """See `HotTier.evict`."""
        return await self._change(
            thread_id, lambda held, now: ops.evict(held, epoch, archived, warm_ttl=warm_ttl, now=now)
        )

    async def trim(self, thread_id: str, epoch: int, archived: Head, keep_from: int) -> HotHeader | None:
        """See `HotTier.trim`."""
        return await self._change(thread_id, lambda held, _: ops.trim(held, epoch, archived, keep_from))

    async def close_epoch(self, thread_id: str, epoch: int) -> None:
        """See `HotTier.close_epoch`."""
        await self._change(thread_id, lambda held, _: ops.close_epoch(held, epoch))

    async def save_slice(self, thread_id: str, epoch: int, data: bytes, expected_version: int) -> int | None:
        """See `HotTier.save_slice`."""
        return await self._change(
            thread_id, lambda held, _: ops.save_slice(held, epoch, data, expected_version)
        )

    async def drop(self, thread_id: str, epoch: int) -> None:
        """See `HotTier.drop`."""
        await self._change(thread_id, lambda held, _: ops.drop(held, epoch))

    async def drop_damaged(self, _thread_id: str, _archived: Archived, _slice: bytes, /) -> bool:
        """A damaged document is left as it is: it may hold more than a thread."""
        return False

    async def check(self) -> None:
        """Prove that the directory takes writes and locks; see `Documents.check`."""
        await self._documents.check()

    async def close(self) -> None:
        """Nothing is held between calls."""

    # -- inside

    async def _find(self, thread_id: str) -> HeldThread | None:
        return thread_in(await self._documents.read(thread_id), self._clock())

    async def _change(
        self, thread_id: str, operation: Callable[[HeldThread | None, float], OperationOutcome[T]]
    ) -> T:
        def decide(parts: Parts) -> DocumentChange[T]:
            now = self._clock()
            held = thread_in(parts, now)
            answer, thread = operation(held, now)
            return DocumentChange(answer, None if thread is held else with_thread(parts, thread))

        return await self._documents.change(thread_id, decide)

    def _without_expired(self, parts: Parts) -> DocumentChange[None]:
        gone = THREAD in parts and expired(parts[THREAD].header, self._clock())
        return DocumentChange(None, with_thread(parts, None) if gone else None)


def with_thread(parts: Parts, thread: HeldThread | None) -> Parts:
    """The parts of a document once it holds this thread, or none."""
    others = {name: part for name, part in parts.items() if name != THREAD}
    return others if thread is None else {**others, THREAD: thread_part(thread)}
