"""A step on its way to ``append.lua``, and what came back; alone, or as a part of a session's commit."""

from helix_temporal.errors import HelixError
from helix_temporal.models.records import Head, head_after
from helix_temporal.stores import _decide
from helix_temporal.stores.protocols.hot import Appended, StepAppend
from helix_temporal.stores.redis import _replies
from helix_temporal.stores.redis._connection import Value
from helix_temporal.stores.redis._replies import Reply
from helix_temporal.stores.redis._stored_messages import read_messages


def append_args(step: StepAppend) -> tuple[tuple[Value, ...], Head]:
    """The script's arguments after the thread id, and the head after the step.

    Raises:
        InvalidRequestError: A step without messages.
    """
    _decide.check_step(step)
    end = head_after(step.head, step.records)
    numbers, made = _replies.step_args(step, end.position)
    data = b"" if step.slice is None else _replies.slice_value(step.slice, step.slice_version + 1)
    return (numbers, step.head.last_id, end.last_id, data, *made), end


def read_appended(reply: Reply, step: StepAppend, end: Head) -> Appended:
    """What became of the step.

    Raises:
        FencedError, HeadMovedError, IdempotencyConflictError, StaleStateError: See `HotTier.append`.
        StoreCorruptError: What stands there is damaged.
    """
    if reply.status == "A":
        return Appended(step.records, end, False, reply.header)
    stored = read_messages(reply.rest, step.head.position, reply.where)
    if reply.status == "R":
        return Appended(stored, head_after(step.head, stored), True, reply.header)
    if reply.status == "V":
        raise _decide.stale_slice(reply.header, step.slice_version)
    raise refused(reply, step.epoch) or _decide.conflict(step, reply.header, stored)


def refused(reply: Reply, epoch: int) -> HelixError | None:
    """Why the record refuses this epoch, if it does."""
    if reply.status == "F":
        return _decide.fenced(reply.header, epoch)
    return _decide.behind(reply.header, epoch) if reply.status == "B" else None
