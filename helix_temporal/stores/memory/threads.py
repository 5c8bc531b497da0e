"""Hot threads in this process: for tests, simulations and the first try; gone with the process."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from helix_temporal.models.stored_messages import Head, StoredMessage
from helix_temporal.stores.protocols.hot import (
    Appended,
    Archived,
    Eviction,
    HotHeader,
    HotSnapshot,
    PageRange,
    Rebase,
    ScannedPage,
    ScannedThread,
    StepAppend,
    StepView,
)
from helix_temporal.stores.threads import operations as ops
from helix_temporal.stores.threads.operations import HotThread, OperationOutcome

T = TypeVar("T")


class MemoryThreads:
    """`HotTier` in a dict.  No method awaits, so each is atomic on its event loop.

    Args:
        clock: Seconds since 1970; what expires and what is stamped goes by it.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._threads: dict[str, HotThread] = {}
        self._archived_places: dict[str, str] = {}

    # -- for tests: what happens to a real server's memory

    def wipe(self) -> None:
        """Forget everything, as a restart without a disk does."""
        self._threads.clear()
        self._archived_places.clear()

    def backup(self) -> dict[str, object]:
        """All threads as of now, for `restore`."""
        return dict(self._threads)

    def restore(self, backup: dict[str, object]) -> None:
        """Go back to a backup, as a failover to a lagging replica does."""
        self._threads = {key: thread for key, thread in backup.items() if isinstance(thread, HotThread)}

    def expires_in(self, thread_id: str) -> float | None:
        """Seconds until the hot thread expires, None if it never does or is not there."""
        thread = self._find_thread(thread_id)
        return None if thread is None or thread.expires_at is None else thread.expires_at - self._clock()

    # -- reads

    async def read_header(self, thread_id: str) -> HotHeader | None:
        """See `HotTier.read_header`."""
        return self.header_now(thread_id)

    async def read_snapshot(self, thread_id: str, since: int) -> HotSnapshot | None:
        """See `HotTier.read_snapshot`."""
        thread = self._find_thread(thread_id)
        return None if thread is None else ops.take_snapshot(thread, since)

    async def read_page(self, thread_id: str, wanted: PageRange) -> HotSnapshot | None:
        """See `HotTier.read_page`."""
        thread = self._find_thread(thread_id)
        return None if thread is None else ops.read_page(thread, wanted)

    async def step_view(
        self, thread_id: str, head: Head, *, after: int, limit: int, max_bytes: int, ids: int
    ) -> StepView | None:
        """See `HotTier.step_view`."""
        if (thread := self._find_thread(thread_id)) is None:
            return None
        return ops.step_view(thread, head, after=after, limit=limit, max_bytes=max_bytes, ids=ids)

    async def scan_page(self, cursor: str | None = None, count: int = 500) -> ScannedPage:
        """See `HotTier.scan_page`."""
        ids = sorted(each for each in self._threads if cursor is None or each > cursor)[:count]
        found = [thread for each in ids if (thread := self._find_thread(each)) is not None]
        threads = tuple(
            ScannedThread(
                each.header.thread_id,
                each.header.place,
                self._archived_places.get(each.header.thread_id, ""),
            )
            for each in found
        )
        return ScannedPage(threads, ids[-1] if len(ids) == count else None)

    # -- writes

    async def mark_archived(self, thread_id: str, place: str) -> None:
        """See `HotTier.mark_archived`."""
        if self._find_thread(thread_id) is not None:
            self._archived_places[thread_id] = place

    async def append(self, step: StepAppend) -> Appended | None:
        """See `HotTier.append`."""
        return self.append_now(step)

    async def rebase(self, change: Rebase) -> HotHeader | None:
        """See `HotTier.rebase`."""
        thread_id = change.header.thread_id
        return self._store_outcome(
            thread_id, ops.rebase_thread(self._find_thread(thread_id), change, self._clock())
        )

    async def install(
        self, header: HotHeader, messages: Sequence[StoredMessage], *, replace: bool
    ) -> HotHeader:
        """See `HotTier.install`."""
        thread = self._find_thread(header.thread_id)
        outcome = ops.install_thread(thread, header, messages, replace=replace, now=self._clock())
        return self._store_outcome(header.thread_id, outcome)

    async def evict(
        self, thread_id: str, epoch: int, archived: Archived, *, warm_ttl: float | None = None
    ) -> Eviction:
        """See `HotTier.evict`."""
        thread = self._find_thread(thread_id)
        outcome = ops.evict_thread(thread, epoch, archived, warm_ttl=warm_ttl, now=self._clock())
        return self._store_outcome(thread_id, outcome)

    async def trim(self, thread_id: str, epoch: int, archived: Head, keep_from: int) -> HotHeader | None:
        """See `HotTier.trim`."""
        return self._store_outcome(
            thread_id, ops.trim_thread(self._find_thread(thread_id), epoch, archived, keep_from)
        )

    async def close_epoch(self, thread_id: str, epoch: int) -> None:
        """See `HotTier.close_epoch`."""
        self._store_outcome(thread_id, ops.close_epoch(self._find_thread(thread_id), epoch))

    async def save_slice(self, thread_id: str, epoch: int, data: bytes, expected_version: int) -> int | None:
        """See `HotTier.save_slice`."""
        outcome = ops.save_slice(self._find_thread(thread_id), epoch, data, expected_version)
        return self._store_outcome(thread_id, outcome)

    async def drop(self, thread_id: str, epoch: int) -> None:
        """See `HotTier.drop`."""
        self._store_outcome(thread_id, ops.drop_thread(self._find_thread(thread_id), epoch))

    async def drop_damaged(self, _thread_id: str, _archived: Archived, _slice: bytes, /) -> bool:
        """Nothing is damaged in memory."""
        return False

    async def check(self) -> None:
        """Nothing to refuse: memory evicts nothing."""

    async def close(self) -> None:
        """Nothing to give back."""

    # -- for sessions that lie here too: one instant with what they do

    def header_now(self, thread_id: str) -> HotHeader | None:
        """See `HotTier.read_header`."""
        thread = self._find_thread(thread_id)
        return None if thread is None else thread.header

    def append_now(self, step: StepAppend) -> Appended | None:
        """See `HotTier.append`."""
        thread = self._find_thread(step.thread_id)
        return self._store_outcome(step.thread_id, ops.append_to_thread(thread, step, self._clock()))

    # -- inside

    def _find_thread(self, thread_id: str) -> HotThread | None:
        thread = self._threads.get(thread_id)
        if thread is not None and thread.expired(self._clock()):
            del self._threads[thread_id]
            self._archived_places.pop(thread_id, None)
            return None
        return thread

    def _store_outcome(self, thread_id: str, outcome: OperationOutcome[T]) -> T:
        if outcome.thread is None:
            self._threads.pop(thread_id, None)
            self._archived_places.pop(thread_id, None)
        else:
            self._threads[thread_id] = outcome.thread
        return outcome.answer
