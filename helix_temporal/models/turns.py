"""The messages of a thread together: their kinds, where turns begin, and where a thread may be cut."""

from collections.abc import Sequence

from helix_temporal.errors import InvalidRequestError
from helix_temporal.models.messages import Message, decode_message, encode_message, kind_of
from helix_temporal.models.stored_messages import Kind, StoredMessage
from helix_temporal.models.zeitlich_rows import NamedCall, find_said, read_calls_and_results


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
    """How a store treats each of these messages, which follow each other."""
    kinds = [kind_of(message) for message in messages]
    begun, waiting = 0, list[NamedCall]()
    for at, message in enumerate(messages):
        asked, answered = read_calls_and_results(message)
        if message.role != "foreign":
            waiting = []
        if [each for each in answered if _remove_answered_call(waiting, each)]:
            # A row that answers and asks again belongs to both steps, and so makes them one.
            kinds[begun] = Kind.RESULT if kinds[begun] == Kind.RESULT else Kind.CALLS
            kinds[begun + 1 : at + 1] = [Kind.RESULT] * (at - begun)
        if asked:
            begun, waiting = at, asked
    return kinds


def starts_in(messages: Sequence[StoredMessage]) -> list[int]:
    """Places after the first at which turns begin: where users speak again.

    A prompt among rows of version 1 belongs to the turn of the user's message that it stands before.
    """
    begins = [_begins_turn(message) for message in messages]
    return [at for at in range(1, len(messages)) if begins[at] and not begins[at - 1]]


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
    if before == Kind.CALLS or after == Kind.RESULT:
        raise InvalidRequestError(f"{thread}: position {position} is between a tool call and its result")


def user_in(message: StoredMessage) -> Message | None:
    """The user's message as it is stored: itself, or what a row of version 1 says; None if no user speaks."""
    if message.kind == Kind.USER:
        return decode_message(message)
    said = find_said(message)
    return said if said is not None and said.role == "user" else None


def answer_in(message: StoredMessage) -> Message | None:
    """The answer that ends a step without calls, as `user_in`; None if it is anything else."""
    if message.kind != Kind.OTHER:
        return decode_message(message) if message.kind == Kind.ANSWER else None
    said = find_said(message)
    if said is None or said.role != "assistant":
        return None
    asked, _ = read_calls_and_results(decode_message(message))
    return None if asked else said


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
