"""Pure: what an open or a fork may do to a thread that is there, and where it cuts."""

from collections.abc import Sequence
from dataclasses import dataclass

from helix_temporal.errors import HeadMovedError, InvalidRequestError, ThreadExistsError, ThreadNotFoundError
from helix_temporal.models.records import Head, Kind, Record
from helix_temporal.stores.protocols.threads import Create, ForkThread, OpenThread, Reopen


def check_existence(request: OpenThread, *, exists: bool) -> None:
    """Refuse to create over a thread, or to continue none.

    Raises:
        ThreadExistsError, ThreadNotFoundError.
    """
    if exists and request.create is Create.NEW:
        raise ThreadExistsError(f"thread {request.thread_id!r} exists; continue it or choose another id")
    if not exists and (request.create is Create.NEVER or request.reopen is not None):
        raise ThreadNotFoundError(f"thread {request.thread_id!r} was never created, or was deleted")


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


def count_kept_messages(reopen: Reopen, after: Sequence[Record], committed: int) -> int | None:
    """How many messages behind ``known_head`` a re-open keeps: the step under way, if it stands there whole.

    None: all of them. They are a turn of other messages, which the workflow was reset to before: its tools
    may have run, and do not run under other keys.
    """
    count = len(reopen.inputs)
    if not count:
        return 0
    has_answer = len(after) > count and after[count].kind in {Kind.ANSWER, Kind.CALLS}
    if tuple(record.id for record in after[:count]) == reopen.inputs and has_answer == reopen.answered:
        return count + (1 if has_answer else 0)
    begins = reopen.known_head == reopen.turn_start and committed == reopen.turn_start.position
    return None if after and begins else 0
