"""Ends, pauses and resets of streams: pure decisions, the same for every store."""

from dataclasses import replace
from typing import Final

from helix_temporal.errors import InvalidRequestError
from helix_temporal.models.chunks import EndStatus
from helix_temporal.models.states import ErrorInfo
from helix_temporal.stores._stream_rules import Change, Facts, Head, Refused, closed, refused

_OPERATIONS: Final = 32
"""So many ids of operations are remembered."""

_END_STATUSES: Final = ("completed", "interrupted", "aborted")


def check_fence(head: Head, fence: int | None) -> int | None:
    """The higher of both.

    Raises:
        FencedError: The stream's is higher.
    """
    if fence is not None and head.fence is not None and fence < head.fence:
        raise refused(head.stream_id, Refused("fenced", head.fence), fence)
    return head.fence if fence is None else fence


def done(head: Head, operation_id: str | None) -> bool:
    """Whether the operation is one of the last that were done."""
    return operation_id is not None and operation_id in head.facts.operations


def check_end_status(status: object) -> EndStatus:
    """One of the three.

    Raises:
        InvalidRequestError: It is none.
    """
    if status not in _END_STATUSES:
        raise InvalidRequestError(f"end status {status!r}: one of {', '.join(_END_STATUSES)} expected")
    return status


def end(head: Head, status: EndStatus, output: object, size: int | None, now: int) -> Change | None:
    """End it; None if it ended so before.  ``size``: of an output that is left out."""
    if head.status == "ended" and head.facts.outcome == status:
        return None
    _refuse_over(head, f"it cannot end as {status!r} any more")
    facts = replace(head.facts, outcome=status, output=output, output_bytes=size, ended_at=now)
    return Change(head, "ended", facts, head.fence)


def fail(head: Head, error: ErrorInfo, now: int) -> Change | None:
    """End it by a failure; None if it failed before."""
    if head.status == "failed":
        return None
    _refuse_over(head, "it cannot fail any more")
    facts = replace(head.facts, error=(error.type, error.message), ended_at=now)
    return Change(head, "failed", facts, head.fence)


def pause(head: Head) -> Change | None:
    """Close it for now."""
    _refuse_over(head, "it cannot be paused any more")
    return None if head.status == "paused" else Change(head, "paused", head.facts, head.fence)


def resume(head: Head) -> Change | None:
    """Open it again."""
    _refuse_over(head, "it cannot be resumed any more")
    return None if head.status == "active" else Change(head, "active", head.facts, head.fence)


def reset(head: Head, chunk: bytes, now: int) -> Change:
    """Begin anew after all that was written, at a sequence that leaps to the store's clock.

    A store that was restored from an older copy gives out again the numbers that were lost with the newer
    one.  Whoever has read those is before the leap, and so comes to the ``stream_resync`` next.
    """
    sequence = max(head.last + 1, now)
    leapt = head.facts.leapt + sequence - head.last - 1
    facts = Facts(resync_at=sequence, leapt=leapt, operations=head.facts.operations)
    return Change(head, "active", facts, head.fence, settled=True, chunk=chunk)


def under(change: Change, fence: int | None, operation_id: str | None) -> Change:
    """The change with who made it."""
    operations = change.facts.operations
    if operation_id is not None:
        operations = (*operations, operation_id)[-_OPERATIONS:]
    return replace(change, fence=fence, facts=replace(change.facts, operations=operations))


def changed(change: Change, head: Head, now: int) -> Head | None:
    """The head after a change; None if it is not what was seen any more."""
    before = change.before
    same = head.made == before.made and head.revision == before.revision
    if not same or (change.settled and head.last != before.last) or (head.fence or 0) > (change.fence or 0):
        return None
    last = head.last if change.sequence is None else change.sequence
    return replace(
        head,
        status=change.status,
        facts=change.facts,
        fence=change.fence,
        first=head.first if change.sequence is None else last,
        last=last,
        revision=head.revision + 1,
        updated_at=now,
    )


def _refuse_over(head: Head, wanted: str) -> None:
    if head.status in {"ended", "failed"}:
        raise closed(head.stream_id, head.facts.outcome or head.status, wanted)
