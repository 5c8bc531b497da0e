"""What each operation of a hot tier makes of a thread: pure.

A backend whose atomic unit is Python finds the thread, asks an operation here, and stores
``OperationOutcome.thread`` where it is not the very object that it found.  One whose atomic unit is a
statement or a script asks the single decisions.  All times are seconds since 1970 of the backend's clock.

A rule that a script or a statement repeats says so in a comment, ``# copies:`` and the backends.  Each copy
stands below a comment ``rule:`` with the rule's name: ``grep -rn 'rule: stores.threads.operations.'`` finds
all copies of the rules below.  Whoever changes a rule changes these with it; the contracts of `HotTier` hold
all of them to the same answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Generic, NamedTuple, TypeVar

from helix_temporal.errors import (
    InvalidIdError,
    InvalidRequestError,
    StaleStateError,
    ThreadNotFoundError,
)
from helix_temporal.models.states import is_past
from helix_temporal.models.stored_messages import EMPTY, Head, StoredMessage, head_after, size_of
from helix_temporal.stores.paging import trim_page
from helix_temporal.stores.protocols.hot import (
    SINCE_ARCHIVED,
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
from helix_temporal.stores.threads.fences import Fence
from helix_temporal.stores.threads.standing_step import ends_turn, is_repeated_step

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class HotThread:
    """One thread as it is held: the header, every message from the base on, and when it expires."""

    header: HotHeader
    messages: tuple[StoredMessage, ...]
    expires_at: float | None = None

    def messages_from(self, start: int) -> tuple[StoredMessage, ...]:
        """The messages from position ``start`` on."""
        return self.messages[start - self.header.base.position :]

    def id_before(self, position: int) -> str | None:
        """Id of the message just before ``position``; None if that is not held."""
        return HotSnapshot(self.header, self.header.base.position, self.messages).id_before(position)

    # copies: postgres
    def expired(self, now: float) -> bool:
        """Whether it counts as gone."""
        return is_past(self.expires_at, now)


class OperationOutcome(NamedTuple, Generic[T_co]):
    """What to answer, and what to hold from now on: the same object for no change, None for nothing."""

    answer: T_co
    thread: HotThread | None


# ---- arguments --------------------------------------------------------------------------------------


def check_step(step: StepAppend) -> None:
    """Refuse a step without messages.

    Raises:
        InvalidRequestError: Neither inputs nor answer.
    """
    if not step.inputs and step.answer is None:
        raise InvalidRequestError(f"thread {step.thread_id!r}: a step needs inputs or an answer, got neither")


def check_rebase(change: Rebase) -> None:
    """Refuse a change whose new header does not describe what it leaves there.

    Raises:
        InvalidRequestError: It says what the header claims and what would be there.
    """
    header, keep = change.header, change.keep
    had = change.expected[1].position if change.expected else header.base.position
    if change.expected is None and keep != had:
        _raise_contradiction(header, f"keep {keep} of an absent hot thread, its base is {had}")
    if not header.base.position <= keep <= had:
        _raise_contradiction(header, f"keep {keep} is outside base {header.base.position} to head {had}")
    _check_span(header, keep, change.messages)


def check_install(header: HotHeader, messages: Sequence[StoredMessage]) -> None:
    """Refuse messages that do not lead from the header's base to its head.

    Raises:
        InvalidRequestError: It says what the header claims and what was given.
    """
    _check_span(header, header.base.position, messages)
    if not messages and header.head != header.base:
        _raise_contradiction(header, f"head {header.head} without messages, but base {header.base}")


def _check_span(header: HotHeader, start: int, messages: Sequence[StoredMessage]) -> None:
    if start + len(messages) != header.head.position:
        _raise_contradiction(
            header, f"head {header.head.position}, yet {len(messages)} messages follow {start}"
        )
    if messages and messages[-1].id != header.head.last_id:
        _raise_contradiction(
            header, f"head names message {header.head.last_id!r}, the last is {messages[-1].id!r}"
        )
    if header.committed > header.head.position:
        _raise_contradiction(header, f"committed {header.committed} is beyond head {header.head.position}")


def _raise_contradiction(header: HotHeader, found: str) -> None:
    raise InvalidRequestError(f"thread {header.thread_id!r}: {found}", thread_id=header.thread_id)


# ---- errors -----------------------------------------------------------------------------------------


def not_hot_error(thread_id: str) -> ThreadNotFoundError:
    """A commit adds a step to a thread that is not in the store with its session."""
    return ThreadNotFoundError(
        f"thread {thread_id!r} is not hot here; make it hot first", thread_id=thread_id
    )


def stale_slice_error(header: HotHeader, expected_version: int) -> StaleStateError:
    """The slice was saved meanwhile."""
    return StaleStateError(
        f"thread {header.thread_id!r}: slice is at version {header.slice_version}, not {expected_version}; "
        "read it again",
        thread_id=header.thread_id,
        expected_version=expected_version,
        found_version=header.slice_version,
    )


def other_id_error(thread_id: str) -> InvalidIdError:
    """Two long ids have the same hashed form."""
    return InvalidIdError(
        f"thread {thread_id!r}: its key holds the thread of another id with the same hashed form; "
        "use another id",
        thread_id=thread_id,
    )


# ---- decisions --------------------------------------------------------------------------------------


# copies: redis, postgres
def check_slice_version(header: HotHeader, expected: int) -> None:
    """Refuse to save over a slice that the caller has not seen.

    Raises:
        StaleStateError: The slice was saved meanwhile.
    """
    if header.slice_version != expected:
        raise stale_slice_error(header, expected)


# copies: redis
def may_rebase(there: HotHeader | None, change: Rebase) -> bool:
    """Whether what is there is what the change was made for, and what it keeps is held."""
    if (None if there is None else (there.epoch, there.head)) != change.expected:
        return False
    if there is not None and change.keep > there.base.position:
        return there.base == change.header.base
    return change.keep == change.header.base.position


# copies: redis
def header_to_install(
    there: HotHeader | None, id_before: str | None, header: HotHeader, *, replace: bool
) -> HotHeader | None:
    """The header to write for an install; None where what is there stays.

    Args:
        there: What is there.
        id_before: Id of its message just before the new header's head, None if that is not held.
        header: The copy of the archive.
        replace: Whether it may take the place of what does not continue the archive.

    Raises:
        FencedError: A newer epoch has the thread.
    """
    if there is None:
        return header
    if not replace:
        return None
    Fence.of(there).check_not_replaced(header.epoch)
    if there.epoch < header.epoch:
        return header
    # Below the base: an install that comes late, when the thread is far beyond it.
    is_below = header.head == EMPTY or header.head.position < there.base.position
    if is_below or id_before == header.head.last_id:
        return None
    # A closed epoch stays closed, whatever the archive says.
    return changed(header, closed=header.closed or there.closed)


# copies: redis
def trimmed_base(header: HotHeader, id_before: str | None, epoch: int, archived: Head, keep_from: int) -> int:
    """The new base once what an archive up to ``archived`` holds below ``keep_from`` is forgotten.

    ``id_before`` is the id of the message just before ``archived``, None if that is not held.
    """
    base = header.base.position
    if not Fence.of(header).admits(epoch) or archived.position <= base or id_before != archived.last_id:
        return base
    return max(base, min(keep_from, archived.position))


# copies: redis, postgres
def moved_hint(header: HotHeader, archived: Archived | None, head: int) -> tuple[int, int]:
    """Position and size known to be archived once ``archived`` is; a hint never goes back."""
    if archived is not None and header.archived < archived.head.position <= head:
        return archived.head.position, archived.size
    return header.archived, header.archived_size


# copies: redis, postgres
def unarchived_since(since: int, archived: int, before: int, head: int, now: int) -> int:
    """Time of the oldest append beyond ``archived`` after the thread went from ``before`` to ``head``.

    Where the archive caught up with part of what was waiting, the old time stays: too early is safe.
    """
    if archived >= head or head == 0:
        return 0
    return since if since and archived < before else now


# copies: redis, postgres
def may_drop_damaged(last: int | None, slice_: bytes, archived: Head, archived_slice: bytes) -> bool:
    """Whether a hot thread whose header is damaged may go: the archive has every message and the slice.

    Args:
        last: Position of the newest message that is held, None if there is none.
        slice_: What is held, as it is stored.
        archived: Where the archive ends.
        archived_slice: What the archive has, in the same form.
    """
    return (last is None or last < archived.position) and slice_ == archived_slice


# copies: redis, postgres
def snapshot_start(header: HotHeader, since: int) -> int:
    """Where a snapshot starts."""
    wanted = header.archived - 1 if since == SINCE_ARCHIVED else since
    return min(max(wanted, header.base.position), header.head.position)


# copies: redis, postgres
def select_page(
    messages: Sequence[StoredMessage], first: int, wanted: PageRange
) -> tuple[int, tuple[StoredMessage, ...]]:
    """Position and messages of one page out of ``messages``, the first of which stands at ``first``."""
    start = min(max(wanted.start, first), first + len(messages))
    stop = max(min(wanted.stop, first + len(messages)), start)
    return trim_page(
        start, messages[start - first : stop - first], changed(wanted, limit=max(wanted.limit, 1))
    )


# copies: redis
def archived_all(header: HotHeader, epoch: int, archived: Archived) -> bool:
    """Whether ``archived`` is exactly what the hot thread holds, under this epoch."""
    return (header.epoch, header.head, header.committed, header.slice_version) == (
        epoch,
        archived.head,
        archived.committed,
        archived.slice_version,
    )


# ---- reads ------------------------------------------------------------------------------------------


def take_snapshot(thread: HotThread, since: int) -> HotSnapshot:
    """See `HotTier.read_snapshot`."""
    first = snapshot_start(thread.header, since)
    return HotSnapshot(thread.header, first, thread.messages_from(first))


def read_page(thread: HotThread, wanted: PageRange) -> HotSnapshot:
    """See `HotTier.read_page`."""
    first, messages = select_page(thread.messages, thread.header.base.position, wanted)
    return HotSnapshot(thread.header, first, messages)


# copies: redis, postgres
def step_view(thread: HotThread, head: Head, *, after: int, limit: int, max_bytes: int, ids: int) -> StepView:
    """See `HotTier.step_view`."""
    header, base = thread.header, thread.header.base.position
    at = min(max(head.position, base), header.head.position)
    window = PageRange(base, at, limit=limit, max_bytes=max_bytes, backward=True)
    first, before = select_page(thread.messages, base, window)
    earlier = thread.messages[max(first - base - max(ids - len(before), 0), 0) : first - base]
    return StepView(
        header=header,
        after=thread.messages_from(at)[:after] if at == head.position else (),
        before=before,
        earlier_ids=tuple(message.id for message in earlier),
        last_id_at_head=thread.id_before(head.position),
    )


# ---- writes -----------------------------------------------------------------------------------------


# copies: redis, postgres
def append_to_thread(
    thread: HotThread | None, step: StepAppend, now: float
) -> OperationOutcome[Appended | None]:
    """See `HotTier.append`."""
    check_step(step)
    if thread is None:
        return OperationOutcome(None, None)
    header = thread.header
    stored = thread.messages_from(step.head.position)[: len(step.messages)]
    repeated = is_repeated_step(header, thread.id_before(step.head.position), stored, step)
    if not repeated:
        stored = step.messages
        if step.slice is not None:
            check_slice_version(header, step.slice_version)
            header = changed(header, slice=step.slice, slice_version=step.slice_version + 1)
    end = head_after(step.head, stored)
    grown = thread.messages if repeated else thread.messages + stored
    commits = ends_turn(step, stored)
    header = _header_after(header, step, end, commits, added=0 if repeated else size_of(stored), now=now)
    unexpiring = not repeated or header.committed != thread.header.committed
    kept = HotThread(header, grown, None if unexpiring else thread.expires_at)
    return OperationOutcome(Appended(stored, end, repeated, header), _unless_same(kept, thread))


def rebase_thread(thread: HotThread | None, change: Rebase, now: float) -> OperationOutcome[HotHeader | None]:
    """See `HotTier.rebase`."""
    check_rebase(change)
    if not may_rebase(None if thread is None else thread.header, change):
        return OperationOutcome(None, thread)
    kept = () if thread is None else thread.messages[: max(change.keep - thread.header.base.position, 0)]
    return _hold_thread(change.header, kept + change.messages, now)


def install_thread(
    thread: HotThread | None,
    header: HotHeader,
    messages: Sequence[StoredMessage],
    *,
    replace: bool,
    now: float,
) -> OperationOutcome[HotHeader]:
    """See `HotTier.install`."""
    check_install(header, messages)
    if thread is None:
        return _hold_thread(header, tuple(messages), now)
    id_before = thread.id_before(header.head.position)
    made = header_to_install(thread.header, id_before, header, replace=replace)
    if made is None:
        return OperationOutcome(thread.header, thread)
    return _hold_thread(made, tuple(messages), now)


# copies: redis, postgres
def evict_thread(
    thread: HotThread | None, epoch: int, archived: Archived, *, warm_ttl: float | None, now: float
) -> OperationOutcome[Eviction]:
    """See `HotTier.evict`."""
    if thread is None:
        return OperationOutcome(Eviction.ABSENT, None)
    if not archived_all(thread.header, epoch, archived):
        return OperationOutcome(Eviction.NEWER, thread)
    if warm_ttl is None:
        return OperationOutcome(Eviction.DROPPED, None)
    header = changed(
        thread.header, archived=archived.head.position, archived_size=archived.size, unarchived_since=0
    )
    return OperationOutcome(Eviction.KEPT_WARM, HotThread(header, thread.messages, now + warm_ttl))


# copies: redis, postgres
def trim_thread(
    thread: HotThread | None, epoch: int, archived: Head, keep_from: int
) -> OperationOutcome[HotHeader | None]:
    """See `HotTier.trim`."""
    if thread is None:
        return OperationOutcome(None, None)
    header, messages = thread.header, thread.messages
    start = trimmed_base(header, thread.id_before(archived.position), epoch, archived, keep_from)
    gone = messages[: start - header.base.position]
    if not gone:
        return OperationOutcome(header, thread)
    base = head_after(header.base, gone)
    header = changed(header, base=base, base_size=header.base_size + size_of(gone))
    return OperationOutcome(header, HotThread(header, messages[len(gone) :], thread.expires_at))


# copies: redis, postgres
def close_epoch(thread: HotThread | None, epoch: int) -> OperationOutcome[None]:
    """See `HotTier.close_epoch`."""
    if thread is None or thread.header.epoch != epoch or thread.header.closed:
        return OperationOutcome(None, thread)
    return OperationOutcome(None, changed(thread, header=changed(thread.header, closed=True)))


# copies: redis, postgres
def save_slice(
    thread: HotThread | None, epoch: int, data: bytes, expected_version: int
) -> OperationOutcome[int | None]:
    """See `HotTier.save_slice`."""
    if thread is None:
        return OperationOutcome(None, None)
    Fence.of(thread.header).check_writer(epoch)
    header, version = thread.header, expected_version + 1
    if (header.slice_version, header.slice) == (version, data):
        return OperationOutcome(version, thread)
    check_slice_version(header, expected_version)
    saved = changed(header, slice=data, slice_version=version)
    return OperationOutcome(version, HotThread(saved, thread.messages))


def drop_thread(thread: HotThread | None, epoch: int) -> OperationOutcome[None]:
    """See `HotTier.drop`."""
    if thread is not None:
        Fence.of(thread.header).check_not_replaced(epoch)
    return OperationOutcome(None, None)


# ---- inside -----------------------------------------------------------------------------------------


def _unless_same(kept: HotThread, thread: HotThread) -> HotThread:
    same = kept.messages is thread.messages and kept.expires_at == thread.expires_at
    return thread if same and kept.header == thread.header else kept


def _hold_thread(
    header: HotHeader, messages: tuple[StoredMessage, ...], now: float
) -> OperationOutcome[HotHeader]:
    since = unarchived_since(
        header.unarchived_since,
        header.archived,
        header.head.position,
        header.head.position,
        _to_milliseconds(now),
    )
    header = changed(header, unarchived_since=since)
    return OperationOutcome(header, HotThread(header, messages))


def _header_after(
    header: HotHeader, step: StepAppend, end: Head, commits: bool, *, added: int, now: float
) -> HotHeader:
    before = header.head
    head = end if added else before
    archived, archived_size = moved_hint(header, step.archived, head.position)
    since = unarchived_since(
        header.unarchived_since, archived, before.position, head.position, _to_milliseconds(now)
    )
    return changed(
        header,
        head=head,
        committed=max(header.committed, end.position) if commits else header.committed,
        size=header.size + added,
        archived=archived,
        archived_size=archived_size,
        unarchived_since=since,
    )


def _to_milliseconds(now: float) -> int:
    return int(now * 1000)
