"""Hot threads in this process: for tests, simulations and the first try; gone with the process."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace

from helix_temporal.models.records import Head, Record, head_after, size_of
from helix_temporal.stores import _decide
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


@dataclass(frozen=True, slots=True)
class _Thread:
    header: HotHeader
    records: tuple[Record, ...]
    expires_at: float | None = None

    def tail(self, start: int) -> tuple[Record, ...]:
        return self.records[start - self.header.base.position :]


class MemoryThreads:
    """`HotTier` in a dict.  No method awaits, so each is atomic on its event loop.

    Args:
        clock: Seconds since 1970; what expires and what is stamped goes by it.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._threads: dict[str, _Thread] = {}

    # -- for tests: what happens to a real server's memory

    def wipe(self) -> None:
        """Forget everything, as a restart without a disk does."""
        self._threads.clear()

    def backup(self) -> dict[str, object]:
        """All records as of now, for `restore`."""
        return dict(self._threads)

    def restore(self, backup: dict[str, object]) -> None:
        """Go back to a backup, as a failover to a lagging replica does."""
        self._threads = {key: thread for key, thread in backup.items() if isinstance(thread, _Thread)}

    def expires_in(self, thread_id: str) -> float | None:
        """Seconds until the record expires, None if it never does or is not there."""
        thread = self._find(thread_id)
        return None if thread is None or thread.expires_at is None else thread.expires_at - self._clock()

    # -- reads

    async def header(self, thread_id: str) -> HotHeader | None:
        """See `HotTier.header`."""
        thread = self._find(thread_id)
        return None if thread is None else thread.header

    async def snapshot(self, thread_id: str, since: int) -> HotSnapshot | None:
        """See `HotTier.snapshot`."""
        if (thread := self._find(thread_id)) is None:
            return None
        first = _decide.snapshot_start(thread.header, since)
        return HotSnapshot(thread.header, first, thread.tail(first))

    async def page(self, thread_id: str, wanted: PageRange) -> HotSnapshot | None:
        """See `HotTier.page`."""
        if (thread := self._find(thread_id)) is None:
            return None
        first, records = _decide.select(thread.records, thread.header.base.position, wanted)
        return HotSnapshot(thread.header, first, records)

    async def step_view(
        self, thread_id: str, head: Head, *, after: int, limit: int, max_bytes: int, ids: int
    ) -> StepView | None:
        """See `HotTier.step_view`."""
        if (thread := self._find(thread_id)) is None:
            return None
        header, base = thread.header, thread.header.base.position
        at = min(max(head.position, base), header.head.position)
        window = PageRange(base, at, limit=limit, max_bytes=max_bytes, backward=True)
        first, before = _decide.select(thread.records, base, window)
        earlier = thread.records[max(first - base - max(ids - len(before), 0), 0) : first - base]
        return StepView(
            header=header,
            after=thread.tail(at)[:after] if at == head.position else (),
            before=before,
            earlier_ids=tuple(record.id for record in earlier),
            last_id_at_head=_decide.id_before(header, thread.records, head.position),
        )

    async def scan(self) -> AsyncIterator[str]:
        """See `HotTier.scan`."""
        for thread_id in list(self._threads):
            if self._find(thread_id) is not None:
                yield thread_id

    # -- writes

    async def append(self, step: StepAppend) -> Appended | None:
        """See `HotTier.append`."""
        _decide.check_step(step)
        if (thread := self._writable(step.thread_id, step.epoch)) is None:
            return None
        header = thread.header
        if _decide.id_before(header, thread.records, step.head.position) != step.head.last_id:
            raise _decide.head_moved(header, step.head)
        stored = thread.tail(step.head.position)[: len(step.records)]
        repeated = bool(stored)
        if not repeated:
            stored = step.records
            header = self._saved_slice(header, step)
        elif not _decide.same_step(step, stored):
            raise _decide.conflict(step, header, stored)
        end = head_after(step.head, stored)
        grown = thread.records if repeated else thread.records + stored
        commits = _decide.ends_turn(step, stored)
        header = self._after(header, step, end, commits, added=0 if repeated else size_of(stored))
        unexpiring = not repeated or header.committed != thread.header.committed
        expires_at = None if unexpiring else thread.expires_at
        self._threads[step.thread_id] = _Thread(header, grown, expires_at)
        return Appended(stored, end, repeated, header)

    async def rebase(self, change: Rebase) -> HotHeader | None:
        """See `HotTier.rebase`."""
        _decide.check_rebase(change)
        thread = self._find(change.header.thread_id)
        found = None if thread is None else (thread.header.epoch, thread.header.head)
        if found != change.expected:
            return None
        kept: tuple[Record, ...] = ()
        if thread is not None and change.keep > thread.header.base.position:
            if thread.header.base != change.header.base:
                return None
            kept = thread.records[: change.keep - thread.header.base.position]
        elif change.keep != change.header.base.position:
            return None
        return self._store(change.header, kept + change.records)

    async def install(self, header: HotHeader, records: Sequence[Record], *, replace: bool) -> HotHeader:
        """See `HotTier.install`."""
        _decide.check_install(header, records)
        thread = self._find(header.thread_id)
        if thread is not None:
            there = thread.header
            if not replace:
                return there
            if there.epoch > header.epoch:
                raise _decide.fenced(there, header.epoch)
            if there.epoch == header.epoch:
                if _decide.outdates(there, thread.records, header.head):
                    return there
                header = _keep_closed(header, there)
        return self._store(header, tuple(records))

    async def evict(
        self, thread_id: str, epoch: int, archived: Archived, *, warm_ttl: float | None = None
    ) -> Eviction:
        """See `HotTier.evict`."""
        if (thread := self._find(thread_id)) is None:
            return Eviction.ABSENT
        if not _decide.archived_all(thread.header, epoch, archived):
            return Eviction.NEWER
        if warm_ttl is None:
            del self._threads[thread_id]
            return Eviction.DROPPED
        header = replace(
            thread.header,
            archived=archived.head.position,
            archived_size=archived.size,
            unarchived_since=0,
        )
        self._threads[thread_id] = _Thread(header, thread.records, self._clock() + warm_ttl)
        return Eviction.KEPT_WARM

    async def close_epoch(self, thread_id: str, epoch: int) -> None:
        """See `HotTier.close_epoch`."""
        thread = self._find(thread_id)
        if thread is not None and thread.header.epoch == epoch:
            self._threads[thread_id] = replace(thread, header=replace(thread.header, closed=True))

    async def save_slice(self, thread_id: str, epoch: int, data: bytes, expected_version: int) -> int | None:
        """See `HotTier.save_slice`."""
        if (thread := self._writable(thread_id, epoch)) is None:
            return None
        header, version = thread.header, expected_version + 1
        if (header.slice_version, header.slice) == (version, data):
            return version
        if header.slice_version != expected_version:
            raise _decide.stale_slice(header, expected_version)
        changed = replace(header, slice=data, slice_version=version)
        self._threads[thread_id] = _Thread(changed, thread.records)
        return version

    async def drop(self, thread_id: str, epoch: int) -> None:
        """See `HotTier.drop`."""
        if (thread := self._find(thread_id)) is None:
            return
        if thread.header.epoch > epoch:
            raise _decide.fenced(thread.header, epoch)
        del self._threads[thread_id]

    async def check(self) -> None:
        """Nothing to refuse: memory evicts nothing."""

    async def close(self) -> None:
        """Nothing to give back."""

    # -- inside

    def _find(self, thread_id: str) -> _Thread | None:
        thread = self._threads.get(thread_id)
        if thread is not None and thread.expires_at is not None and thread.expires_at <= self._clock():
            del self._threads[thread_id]
            return None
        return thread

    def _writable(self, thread_id: str, epoch: int) -> _Thread | None:
        thread = self._find(thread_id)
        if thread is not None and (error := _decide.refusal(thread.header, epoch)) is not None:
            raise error
        return thread

    def _store(self, header: HotHeader, records: tuple[Record, ...]) -> HotHeader:
        since = _decide.unarchived_since(
            header.unarchived_since, header.archived, header.head.position, header.head.position, self._now()
        )
        header = replace(header, unarchived_since=since)
        self._threads[header.thread_id] = _Thread(header, records)
        return header

    def _saved_slice(self, header: HotHeader, step: StepAppend) -> HotHeader:
        if step.slice is None:
            return header
        if header.slice_version != step.slice_version:
            raise _decide.stale_slice(header, step.slice_version)
        return replace(header, slice=step.slice, slice_version=step.slice_version + 1)

    def _after(
        self, header: HotHeader, step: StepAppend, end: Head, commits: bool, *, added: int
    ) -> HotHeader:
        before = header.head
        head = end if added else before
        archived, archived_size = _decide.moved_hint(header, step.archived, head.position)
        since = _decide.unarchived_since(
            header.unarchived_since, archived, before.position, head.position, self._now()
        )
        return replace(
            header,
            head=head,
            committed=max(header.committed, end.position) if commits else header.committed,
            size=header.size + added,
            archived=archived,
            archived_size=archived_size,
            unarchived_since=since,
        )

    def _now(self) -> int:
        return int(self._clock() * 1000)


def _keep_closed(header: HotHeader, there: HotHeader) -> HotHeader:
    """A closed epoch stays closed, whatever the archive says."""
    return replace(header, closed=header.closed or there.closed)
