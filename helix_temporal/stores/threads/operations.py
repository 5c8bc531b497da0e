"""What each operation of a hot tier makes of a thread: pure, for backends whose atomic unit is Python.

A backend finds the thread, asks here, and stores ``Outcome.thread`` where it is not the very object that
it found.  All times are seconds since 1970 of the backend's clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

from helix_temporal.models.records import Head, Record, head_after, size_of
from helix_temporal.models.states import is_past
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
from helix_temporal.stores.threads import fences

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class HeldThread:
    """One thread as it is held: the header, every message from the base on, and when it expires."""

    header: HotHeader
    records: tuple[Record, ...]
    expires_at: float | None = None

    def tail(self, start: int) -> tuple[Record, ...]:
        """The messages from position ``start`` on."""
        return self.records[start - self.header.base.position :]

    def expired(self, now: float) -> bool:
        """Whether it counts as gone."""
        return is_past(self.expires_at, now)


class OperationOutcome(NamedTuple, Generic[T_co]):
    """What to answer, and what to hold from now on: the same object for no change, None for nothing."""

    answer: T_co
    thread: HeldThread | None


# ---- reads ------------------------------------------------------------------------------------------


def take_snapshot(thread: HeldThread, since: int) -> HotSnapshot:
    """See `HotTier.snapshot`."""
    first = fences.snapshot_start(thread.header, since)
    return HotSnapshot(thread.header, first, thread.tail(first))


def read_page(thread: HeldThread, wanted: PageRange) -> HotSnapshot:
    """See `HotTier.page`."""
    first, records = fences.select_page(thread.records, thread.header.base.position, wanted)
    return HotSnapshot(thread.header, first, records)


def step_view(
    thread: HeldThread, head: Head, *, after: int, limit: int, max_bytes: int, ids: int
) -> StepView:
    """See `HotTier.step_view`."""
    header, base = thread.header, thread.header.base.position
    at = min(max(head.position, base), header.head.position)
    window = PageRange(base, at, limit=limit, max_bytes=max_bytes, backward=True)
    first, before = fences.select_page(thread.records, base, window)
    earlier = thread.records[max(first - base - max(ids - len(before), 0), 0) : first - base]
    return StepView(
        header=header,
        after=thread.tail(at)[:after] if at == head.position else (),
        before=before,
        earlier_ids=tuple(record.id for record in earlier),
        last_id_at_head=fences.id_before(header, thread.records, head.position),
    )


# ---- writes -----------------------------------------------------------------------------------------


def append_to_thread(
    thread: HeldThread | None, step: StepAppend, now: float
) -> OperationOutcome[Appended | None]:
    """See `HotTier.append`."""
    fences.check_step(step)
    if thread is None:
        return OperationOutcome(None, None)
    _check_writable(thread, step.epoch)
    header = thread.header
    if fences.id_before(header, thread.records, step.head.position) != step.head.last_id:
        raise fences.head_moved(header, step.head)
    stored = thread.tail(step.head.position)[: len(step.records)]
    repeated = bool(stored)
    if not repeated:
        stored = step.records
        header = _saved_slice(header, step)
    elif not fences.same_step(step, stored):
        raise fences.step_conflict_error(step, header, stored)
    end = head_after(step.head, stored)
    grown = thread.records if repeated else thread.records + stored
    commits = fences.ends_turn(step, stored)
    header = _header_after(header, step, end, commits, added=0 if repeated else size_of(stored), now=now)
    unexpiring = not repeated or header.committed != thread.header.committed
    kept = HeldThread(header, grown, None if unexpiring else thread.expires_at)
    return OperationOutcome(Appended(stored, end, repeated, header), _unless_same(kept, thread))


def rebase_thread(
    thread: HeldThread | None, change: Rebase, now: float
) -> OperationOutcome[HotHeader | None]:
    """See `HotTier.rebase`."""
    fences.check_rebase(change)
    found = None if thread is None else (thread.header.epoch, thread.header.head)
    if found != change.expected:
        return OperationOutcome(None, thread)
    kept: tuple[Record, ...] = ()
    if thread is not None and change.keep > thread.header.base.position:
        if thread.header.base != change.header.base:
            return OperationOutcome(None, thread)
        kept = thread.records[: change.keep - thread.header.base.position]
    elif change.keep != change.header.base.position:
        return OperationOutcome(None, thread)
    return _hold_thread(change.header, kept + change.records, now)


def install_thread(
    thread: HeldThread | None, header: HotHeader, records: Sequence[Record], *, replace: bool, now: float
) -> OperationOutcome[HotHeader]:
    """See `HotTier.install`."""
    fences.check_install(header, records)
    if thread is not None:
        there = thread.header
        if not replace:
            return OperationOutcome(there, thread)
        if there.epoch > header.epoch:
            raise fences.fenced_record_error(there, header.epoch)
        if there.epoch == header.epoch:
            if fences.outdates_head(there, thread.records, header.head):
                return OperationOutcome(there, thread)
            header = _keep_closed(header, there)
    return _hold_thread(header, tuple(records), now)


def evict_thread(
    thread: HeldThread | None, epoch: int, archived: Archived, *, warm_ttl: float | None, now: float
) -> OperationOutcome[Eviction]:
    """See `HotTier.evict`."""
    if thread is None:
        return OperationOutcome(Eviction.ABSENT, None)
    if not fences.archived_all(thread.header, epoch, archived):
        return OperationOutcome(Eviction.NEWER, thread)
    if warm_ttl is None:
        return OperationOutcome(Eviction.DROPPED, None)
    header = replace(
        thread.header, archived=archived.head.position, archived_size=archived.size, unarchived_since=0
    )
    return OperationOutcome(Eviction.KEPT_WARM, HeldThread(header, thread.records, now + warm_ttl))


def trim_thread(
    thread: HeldThread | None, epoch: int, archived: Head, keep_from: int
) -> OperationOutcome[HotHeader | None]:
    """See `HotTier.trim`."""
    if thread is None:
        return OperationOutcome(None, None)
    header, records = thread.header, thread.records
    start = fences.trimmed_to(header, records, epoch, archived, keep_from)
    gone = records[: start - header.base.position]
    if not gone:
        return OperationOutcome(header, thread)
    base = head_after(header.base, gone)
    header = replace(header, base=base, base_size=header.base_size + size_of(gone))
    return OperationOutcome(header, HeldThread(header, records[len(gone) :], thread.expires_at))


def close_epoch(thread: HeldThread | None, epoch: int) -> OperationOutcome[None]:
    """See `HotTier.close_epoch`."""
    if thread is None or thread.header.epoch != epoch or thread.header.closed:
        return OperationOutcome(None, thread)
    return OperationOutcome(None, replace(thread, header=replace(thread.header, closed=True)))


def save_slice(
    thread: HeldThread | None, epoch: int, data: bytes, expected_version: int
) -> OperationOutcome[int | None]:
    """See `HotTier.save_slice`."""
    if thread is None:
        return OperationOutcome(None, None)
    _check_writable(thread, epoch)
    header, version = thread.header, expected_version + 1
    if (header.slice_version, header.slice) == (version, data):
        return OperationOutcome(version, thread)
    if header.slice_version != expected_version:
        raise fences.stale_slice(header, expected_version)
    changed = replace(header, slice=data, slice_version=version)
    return OperationOutcome(version, HeldThread(changed, thread.records))


def drop_thread(thread: HeldThread | None, epoch: int) -> OperationOutcome[None]:
    """See `HotTier.drop`."""
    if thread is not None and thread.header.epoch > epoch:
        raise fences.fenced_record_error(thread.header, epoch)
    return OperationOutcome(None, None)


# ---- inside -----------------------------------------------------------------------------------------


def _check_writable(thread: HeldThread, epoch: int) -> None:
    if (error := fences.epoch_refusal(thread.header, epoch)) is not None:
        raise error


def _unless_same(kept: HeldThread, thread: HeldThread) -> HeldThread:
    same = kept.records is thread.records and kept.expires_at == thread.expires_at
    return thread if same and kept.header == thread.header else kept


def _hold_thread(header: HotHeader, records: tuple[Record, ...], now: float) -> OperationOutcome[HotHeader]:
    since = fences.unarchived_since(
        header.unarchived_since,
        header.archived,
        header.head.position,
        header.head.position,
        _to_milliseconds(now),
    )
    header = replace(header, unarchived_since=since)
    return OperationOutcome(header, HeldThread(header, records))


def _saved_slice(header: HotHeader, step: StepAppend) -> HotHeader:
    if step.slice is None:
        return header
    if header.slice_version != step.slice_version:
        raise fences.stale_slice(header, step.slice_version)
    return replace(header, slice=step.slice, slice_version=step.slice_version + 1)


def _header_after(
    header: HotHeader, step: StepAppend, end: Head, commits: bool, *, added: int, now: float
) -> HotHeader:
    before = header.head
    head = end if added else before
    archived, archived_size = fences.moved_hint(header, step.archived, head.position)
    since = fences.unarchived_since(
        header.unarchived_since, archived, before.position, head.position, _to_milliseconds(now)
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


def _keep_closed(header: HotHeader, there: HotHeader) -> HotHeader:
    """A closed epoch stays closed, whatever the archive says."""
    return replace(header, closed=header.closed or there.closed)


def _to_milliseconds(now: float) -> int:
    return int(now * 1000)
