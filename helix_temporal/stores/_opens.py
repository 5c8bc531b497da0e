"""Pure: who may open or write a thread; the same in every store."""

from collections.abc import Sequence
from dataclasses import dataclass

from helix_temporal.errors import (
    FencedError,
    HeadMovedError,
    InvalidRequestError,
    ThreadExistsError,
    ThreadNotFoundError,
)
from helix_temporal.models.records import Head, Kind, Record
from helix_temporal.stores.protocols.hot import HotHeader
from helix_temporal.stores.protocols.threads import Create, OpenThread, Reopen


def check_hot_epoch(header: HotHeader, epoch: int, *, closing: bool = False) -> None:
    """Refuse a caller whose epoch is not the record's.

    Raises:
        FencedError: The record's epoch is higher, or this one is closed.
        HeadMovedError: It is lower: the record is from before the caller's open.
    """
    if header.epoch > epoch:
        raise FencedError(
            f"thread {header.thread_id!r}: epoch {header.epoch} has it, {epoch} is out",
            held=epoch,
            current=header.epoch,
        )
    if header.epoch < epoch:
        raise HeadMovedError(
            f"thread {header.thread_id!r}: the record has epoch {header.epoch}, opened was {epoch}; "
            "open it again"
        )
    if header.closed and not closing:
        raise FencedError(f"thread {header.thread_id!r}: epoch {epoch} is closed")


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


@dataclass(frozen=True, slots=True)
class Place:
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


def taken(request: OpenThread, epoch: int) -> FencedError:
    """The error for an open that a higher epoch, or an equal one of another owner, came before."""
    return FencedError(
        f"thread {request.thread_id!r}: epoch {epoch} has it, {request.epoch} comes too late",
        held=request.epoch,
        current=epoch,
    )
