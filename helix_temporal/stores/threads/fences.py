"""Pure: who may open or write a thread, and what a hot tier decides before it writes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from helix_temporal.errors import (
    FencedError,
    HeadMovedError,
    HelixError,
    IdempotencyConflictError,
    InvalidIdError,
    InvalidRequestError,
    StaleStateError,
    ThreadExistsError,
    ThreadNotFoundError,
)
from helix_temporal.models.records import EMPTY, Head, Kind, Record, size_of
from helix_temporal.stores.protocols.hot import (
    SINCE_ARCHIVED,
    Archived,
    HotHeader,
    PageRange,
    Rebase,
    StepAppend,
)
from helix_temporal.stores.protocols.threads import Create, ForkThread, OpenThread, Reopen


def check_hot_epoch(header: HotHeader, epoch: int, *, closing: bool = False) -> None:
    """Refuse a caller whose epoch is not the record's.

    Raises:
        FencedError: The record's epoch is higher, or this one is closed.
        HeadMovedError: It is lower: the record is from before the caller's open.
    """
    check_epoch(f"thread {header.thread_id!r}", header.epoch, epoch)
    if header.epoch < epoch:
        raise stale_record_error(header, epoch)
    if header.closed and not closing:
        raise closed_epoch_error(header.thread_id, epoch)


def check_epoch(thread: str, current: int, held: int) -> None:
    """Refuse a caller that a newer one has replaced.

    Raises:
        FencedError: ``current``, the epoch that has ``thread``, is higher than the caller's.
    """
    if current > held:
        raise fenced_error(thread, current, held)


def check_existence(request: OpenThread, *, exists: bool) -> None:
    """Refuse to create over a thread, or to continue none.

    Raises:
        ThreadExistsError, ThreadNotFoundError.
    """
    if exists and request.create is Create.NEW:
        raise ThreadExistsError(f"thread {request.thread_id!r} exists; continue it or choose another id")
    if not exists and (request.create is Create.NEVER or request.reopen is not None):
        raise ThreadNotFoundError(f"thread {request.thread_id!r} was never created, or was deleted")


def check_same_owner(request: OpenThread, owner: str) -> None:
    """A re-open may cut only what its own execution chain wrote.

    Raises:
        FencedError: Another execution took over.
    """
    if request.reopen is not None and owner != request.owner:
        raise FencedError(
            f"thread {request.thread_id!r}: another execution took it over; this one must end", owner=owner
        )


def check_adapter(request: OpenThread, adapter: str) -> None:
    """Refuse a thread whose bodies are in another format than the caller's.

    Raises:
        InvalidRequestError: Both are stated and differ.
    """
    if request.adapter and adapter and request.adapter != adapter:
        raise InvalidRequestError(
            f"thread {request.thread_id!r} was written with adapter {adapter!r}, not {request.adapter!r}"
        )


def check_rewind(request: OpenThread, position: int, committed: int) -> None:
    """Refuse to rewind beyond the finished turns.

    Raises:
        InvalidRequestError: Fewer messages are committed.
    """
    if position > committed:
        raise InvalidRequestError(
            f"thread {request.thread_id!r}: rewind to {position}, but only {committed} are committed"
        )


def other_message_error(request: OpenThread, position: int) -> HeadMovedError:
    """The error for a rewind to a message that does not stand there."""
    return HeadMovedError(f"thread {request.thread_id!r}: position {position} has another message")


def fork_position(request: ForkThread, committed: int) -> int:
    """Where a fork cuts its source, by default behind the last finished turn.

    Raises:
        InvalidRequestError: Fewer messages are committed.
    """
    position = committed if request.at is None else request.at
    if not 0 <= position <= committed:
        raise InvalidRequestError(
            f"thread {request.source_id!r}: fork at {position}, but {committed} are committed"
        )
    return position


@dataclass(frozen=True, slots=True)
class OpenPlace:
    """Where an open cuts, and where its caller goes on.

    They differ where the caller does not know of the step that it has under way, which is found standing;
    and after a reset, where behind the finished turns one is under way that only a step can tell to be its
    own.
    """

    cut: Head
    at: Head


def kept_after_known(reopen: Reopen, after: Sequence[Record], committed: int) -> int | None:
    """How many messages behind ``known`` a re-open keeps: the step under way, if it stands there whole.

    None: all of them. They are a turn of other messages, which the workflow was reset to before: its tools
    may have run, and do not run under other keys.
    """
    count = len(reopen.inputs)
    if not count:
        return 0
    has_answer = len(after) > count and after[count].kind in {Kind.ANSWER, Kind.CALLS}
    if tuple(record.id for record in after[:count]) == reopen.inputs and has_answer == reopen.answered:
        return count + (1 if has_answer else 0)
    begins = reopen.known == reopen.turn_start and committed == reopen.turn_start.position
    return None if after and begins else 0


_ANSWERS: Final = Kind.ANSWER + Kind.CALLS


# ---- errors, worded once ----------------------------------------------------------------------------


def fenced_error(thread: str, current: int, held: int, then: str = "is out", **facts: str) -> FencedError:
    """The error for a caller whose place a newer one has taken.

    Args:
        thread: What it wanted to write, as the error names it: ``thread 'x'`` or ``session 'x'``.
        current: The epoch that has it.
        held: The caller's.
        then: What becomes of the caller's epoch.
        facts: What else the error knows.
    """
    text = f"{thread}: epoch {current} has it, {held} {then}"
    return FencedError(text, **facts, held=held, current=current)


def late_open_error(request: OpenThread, epoch: int) -> FencedError:
    """The error for an open that a higher epoch, or an equal one of another owner, came before."""
    return fenced_error(f"thread {request.thread_id!r}", epoch, request.epoch, "comes too late")


def closed_epoch_error(thread_id: str, epoch: int) -> FencedError:
    """The error for a caller that has closed its epoch, or whose epoch was closed for it."""
    return FencedError(f"thread {thread_id!r}: epoch {epoch} is closed")


def fenced_record_error(header: HotHeader, epoch: int) -> FencedError:
    """The record belongs to a newer epoch, or this one is closed or deleted."""
    if header.epoch > epoch:
        why = f"epoch {header.epoch} has opened it"
    else:
        why = "it was deleted" if header.deleted else "this epoch is closed"
    return FencedError(
        f"thread {header.thread_id!r} refuses epoch {epoch}: {why}; stop writing",
        thread_id=header.thread_id,
        epoch=epoch,
        found_epoch=header.epoch,
        closed=header.closed,
        deleted=header.deleted,
    )


def stale_record_error(header: HotHeader, epoch: int) -> HeadMovedError:
    """The record is older than the caller's open: it was rolled back."""
    return HeadMovedError(
        f"thread {header.thread_id!r} is hot with epoch {header.epoch}, opened with {epoch}: "
        "the record is older than the open; open again",
        thread_id=header.thread_id,
        epoch=epoch,
        found_epoch=header.epoch,
    )


def head_moved(header: HotHeader, wanted: Head) -> HeadMovedError:
    """The step cannot stand at its head, and does not."""
    return HeadMovedError(
        f"thread {header.thread_id!r} does not go on from position {wanted.position} after message "
        f"{wanted.last_id!r} with this step: it holds {header.base.position} to {header.head.position}, "
        f"the last message being {header.head.last_id!r}; open again",
        thread_id=header.thread_id,
        position=wanted.position,
        last_id=wanted.last_id,
        found_position=header.head.position,
        found_last_id=header.head.last_id,
        found_base=header.base.position,
    )


def other_bytes(header: HotHeader, wanted: Head) -> IdempotencyConflictError:
    """Same ids at the same place, other content."""
    return IdempotencyConflictError(
        f"thread {header.thread_id!r} holds the step's message ids at position {wanted.position} with other "
        "content; an id stands for one content only",
        thread_id=header.thread_id,
        position=wanted.position,
    )


def stale_slice(header: HotHeader, expected_version: int) -> StaleStateError:
    """The slice was saved meanwhile."""
    return StaleStateError(
        f"thread {header.thread_id!r}: slice is at version {header.slice_version}, not {expected_version}; "
        "read it again",
        thread_id=header.thread_id,
        expected_version=expected_version,
        found_version=header.slice_version,
    )


def other_id(thread_id: str) -> InvalidIdError:
    """Two long ids have the same hashed form."""
    return InvalidIdError(
        f"thread {thread_id!r}: its key holds the record of another id with the same hashed form; "
        "use another id",
        thread_id=thread_id,
    )


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
        _raise_contradiction(header, f"keep {keep} of an absent record, its base is {had}")
    if not header.base.position <= keep <= had:
        _raise_contradiction(header, f"keep {keep} is outside base {header.base.position} to head {had}")
    _check_span(header, keep, change.records)


def check_install(header: HotHeader, records: Sequence[Record]) -> None:
    """Refuse records that do not lead from the header's base to its head.

    Raises:
        InvalidRequestError: It says what the header claims and what was given.
    """
    _check_span(header, header.base.position, records)
    if not records and header.head != header.base:
        _raise_contradiction(header, f"head {header.head} without records, but base {header.base}")


def _check_span(header: HotHeader, start: int, records: Sequence[Record]) -> None:
    if start + len(records) != header.head.position:
        _raise_contradiction(
            header, f"head {header.head.position}, yet {len(records)} records follow {start}"
        )
    if records and records[-1].id != header.head.last_id:
        _raise_contradiction(
            header, f"head names message {header.head.last_id!r}, the last is {records[-1].id!r}"
        )
    if header.committed > header.head.position:
        _raise_contradiction(header, f"committed {header.committed} is beyond head {header.head.position}")


def _raise_contradiction(header: HotHeader, found: str) -> None:
    raise InvalidRequestError(f"thread {header.thread_id!r}: {found}", thread_id=header.thread_id)


# ---- decisions --------------------------------------------------------------------------------------


def epoch_refusal(header: HotHeader, epoch: int) -> HelixError | None:
    """Why this epoch may not write, or None."""
    if header.epoch > epoch or (header.epoch == epoch and (header.closed or header.deleted)):
        return fenced_record_error(header, epoch)
    return stale_record_error(header, epoch) if header.epoch < epoch else None


def id_before(header: HotHeader, records: Sequence[Record], position: int) -> str | None:
    """Id of the message just before ``position``, None if not held; ``records`` start at the base."""
    if position == header.base.position:
        return header.base.last_id
    if header.base.position < position <= header.head.position:
        return records[position - header.base.position - 1].id
    return None


def holds_head(header: HotHeader, records: Sequence[Record], head: Head) -> bool:
    """Whether the record has this very message just before this position."""
    return head == EMPTY or id_before(header, records, head.position) == head.last_id


def outdates_head(header: HotHeader, records: Sequence[Record], head: Head) -> bool:
    """Whether the record goes on from ``head``, or is so far beyond it that it no longer holds the place."""
    return head.position < header.base.position or holds_head(header, records, head)


def trimmed_to(
    header: HotHeader, records: Sequence[Record], epoch: int, archived: Head, keep_from: int
) -> int:
    """The new base once what an archive up to ``archived`` holds below ``keep_from`` is forgotten."""
    base = header.base.position
    mine = header.epoch == epoch and not header.closed and not header.deleted
    if not mine or archived.position <= base or not holds_head(header, records, archived):
        return base
    return max(base, min(keep_from, archived.position))


def same_step(step: StepAppend, stored: Sequence[Record]) -> bool:
    """Whether ``stored``, read from the step's head on, is this step: its inputs, then some answer."""
    count = len(step.inputs)
    if tuple(stored[:count]) != step.inputs:
        return False
    return step.answer is None or (
        len(stored) > count and stored[count].kind in answer_kinds(step.answer.kind)
    )


def answer_kinds(kind: str) -> str:
    """Kinds that count as the answer of a step whose own answer is of ``kind``."""
    return _ANSWERS if kind in _ANSWERS else kind


def step_conflict_error(step: StepAppend, header: HotHeader, stored: Sequence[Record]) -> HelixError:
    """The error for a step at whose head something else stands."""
    ids = [record.id for record in step.inputs]
    found = stored[: len(ids)]
    if ids and [record.id for record in found] == ids and tuple(found) != step.inputs:
        return other_bytes(header, step.head)
    return head_moved(header, step.head)


def moved_hint(header: HotHeader, archived: Archived | None, head: int) -> tuple[int, int]:
    """Position and size known to be archived once ``archived`` is; a hint never goes back."""
    if archived is not None and header.archived < archived.head.position <= head:
        return archived.head.position, archived.size
    return header.archived, header.archived_size


def unarchived_since(since: int, archived: int, before: int, head: int, now: int) -> int:
    """Time of the oldest append beyond ``archived`` after the thread went from ``before`` to ``head``.

    Where the archive caught up with part of what was waiting, the old time stays: too early is safe.
    """
    if archived >= head or head == 0:
        return 0
    return since if since and archived < before else now


def snapshot_start(header: HotHeader, since: int) -> int:
    """Where a snapshot starts."""
    wanted = header.archived - 1 if since == SINCE_ARCHIVED else since
    return min(max(wanted, header.base.position), header.head.position)


def select_page(records: Sequence[Record], first: int, wanted: PageRange) -> tuple[int, tuple[Record, ...]]:
    """Position and records of one page out of ``records``, the first of which stands at ``first``."""
    start = min(max(wanted.start, first), first + len(records))
    stop = max(min(wanted.stop, first + len(records)), start)
    held = records[start - first : stop - first]
    count = size = 0
    for record in reversed(held) if wanted.backward else held:
        size += size_of((record,))
        if count and (count >= wanted.limit or size > wanted.max_bytes):
            break
        count += 1
    if wanted.backward:
        return stop - count, tuple(held[len(held) - count :])
    return start, tuple(held[:count])


def ends_turn(step: StepAppend, stored: Sequence[Record]) -> bool:
    """Whether the step, as it stands, commits: a first answer that asks for tools never does, whatever
    a later attempt's own answer would have been.
    """
    return step.commits and stored[-1].kind != Kind.CALLS


def archived_all(header: HotHeader, epoch: int, archived: Archived) -> bool:
    """Whether ``archived`` is exactly what the record holds, under this epoch."""
    return (header.epoch, header.head, header.committed, header.slice_version) == (
        epoch,
        archived.head,
        archived.committed,
        archived.slice_version,
    )
