"""The messages of a thread together: their kinds, where turns begin, and where a thread may be cut."""

import itertools
from collections.abc import Sequence

from helix_temporal.errors import InvalidRequestError
from helix_temporal.models.foreign_rows import find_foreign_row, find_said, read_foreign_row
from helix_temporal.models.foreign_rows.row import NamedCall
from helix_temporal.models.messages import Message, decode_message, encode_message, kind_of
from helix_temporal.models.stored_messages import Kind, StoredMessage


def encode_messages(messages: Sequence[Message]) -> tuple[StoredMessage, ...]:
    """The messages as stores keep them, in a row.

    Raises:
        InvalidMessageError, TooLargeError: As `encode_message`.
    """
    kinds = kinds_of(messages)
    return tuple(
        encode_message(message)._replace(kind=kind) for message, kind in zip(messages, kinds, strict=True)
    )


def kinds_of(messages: Sequence[Message]) -> list[str]:
    """How a store treats each of these messages, which follow each other.

    A message of ours and a foreign row have their kinds by themselves, but for rows of archives, which are
    imported as a whole: see `ForeignRow.paired`.
    """
    kinds, begun, waiting = list[str](), 0, list[NamedCall]()
    for at, message in enumerate(messages):
        row = read_foreign_row(message)
        kinds.append(kind_of(message) if row is None else row.kind)
        if message.role != "foreign":
            waiting = []
        if row is None or not row.paired:
            continue
        if [each for each in row.results if _remove_answered_call(waiting, each)]:
            # A row that answers and asks again belongs to both steps, and so makes them one.
            kinds[begun] = Kind.RESULT if kinds[begun] == Kind.RESULT else Kind.CALLS
            kinds[begun + 1 : at + 1] = [Kind.RESULT] * (at - begun)
        if row.calls:
            begun, waiting = at, list(row.calls)
    return kinds


def starts_in(messages: Sequence[StoredMessage], *, from_begin: bool = False) -> list[int]:
    """Places after the first at which turns begin: where users speak again.

    A prompt among foreign rows belongs to the turn of the user's message that it stands before.  What a user
    says in a foreign row while a call waits for its result belongs to the turn of the call.

    Args:
        messages: Some that follow each other.
        from_begin: The first of them is the first of its thread: foreign rows that join the one before them
            have none there, and belong to the first turn.
    """
    begins = [_begins_turn(message) for message in messages]
    first = 1
    if from_begin:
        first += sum(1 for _ in itertools.takewhile(lambda message: message.kind == Kind.RESULT, messages))
    return [
        at
        for at in range(first, len(messages))
        if begins[at]
        and not begins[at - 1]
        and (messages[at].kind == Kind.USER or is_step_border(messages[at - 1].kind, messages[at].kind))
    ]


def is_step_border(before: str | None, after: str | None) -> bool:
    """Whether messages of these kinds, one after the other, may be parted: no call loses its result by it.

    Several calls of one step may stand in rows of their own, before all of its results.
    """
    return before != Kind.CALLS and after != Kind.RESULT


def check_split(thread: str, position: int, before: str | None, after: str | None) -> None:
    """Refuse to end a copy or a cut between a tool call and its result.

    Args:
        thread: What is cut, for the error: ``thread 'x'`` or ``session 'x'``.
        position: Where.
        before: Kind of the message before it; None at the begin.
        after: Kind of the message behind it; None at the end.

    Raises:
        InvalidRequestError: The call before it has no result yet, or the result behind it loses its call.
    """
    if before is not None and not is_step_border(before, after):
        raise InvalidRequestError(f"{thread}: position {position} is between a tool call and its result")


def user_in(message: StoredMessage) -> Message | None:
    """The user's message as it is stored: itself, or what a foreign row says; None if no user speaks."""
    if message.kind == Kind.USER:
        return decode_message(message)
    said = find_said(message)
    return said if said is not None and said.role == "user" else None


def answer_in(message: StoredMessage) -> Message | None:
    """The answer that ends a step without calls, as `user_in`; None if it is anything else."""
    if message.kind != Kind.OTHER:
        return decode_message(message) if message.kind == Kind.ANSWER else None
    said, row = find_said(message), find_foreign_row(message)
    return said if said is not None and said.role == "assistant" and row and not row.calls else None


def find_answer(messages: Sequence[StoredMessage]) -> Message | None:
    """The answer that a turn ends with, as `answer_in`; foreign rows that say nothing may stand behind it."""
    spoken = (message for message in reversed(messages) if not _is_silent(message))
    last = next(spoken, None)
    return None if last is None else answer_in(last)


def _is_silent(message: StoredMessage) -> bool:
    row = find_foreign_row(message)
    return row is not None and not row.calls and not row.results and find_said(message) is None


def _begins_turn(message: StoredMessage) -> bool:
    """Whether a turn begins with this message, unless one began with that before it."""
    if message.kind != Kind.OTHER:
        return message.kind == Kind.USER
    said = find_said(message)
    return said is not None and said.role in {"system", "user"}


def _remove_answered_call(waiting: list[NamedCall], result: NamedCall) -> bool:
    """Whether a call waits for this result, which is answered then."""
    for at, call in enumerate(waiting):
        by_name = result.name is not None and result.name == call.name
        if result.id == call.id if result.id and call.id else by_name:
            del waiting[at]
            return True
    return False
