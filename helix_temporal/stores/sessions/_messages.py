"""Pure: messages that are to be appended, and what of them is there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from helix_temporal.errors import IdempotencyConflictError, InvalidRequestError
from helix_temporal.models.messages import Message, to_record
from helix_temporal.models.queries import AppendResult
from helix_temporal.models.records import Head, Record
from helix_temporal.stores.sessions._checks import checked


def to_records(messages: Sequence[Message]) -> tuple[Record, ...]:
    """The messages as a thread keeps them.

    Raises:
        InvalidRequestError: Two have the same id.
        InvalidMessageError, TooLargeError: One cannot be kept.
    """
    records = tuple(to_record(checked(message, Message)) for message in messages)
    if len({record.id for record in records}) < len(records):
        raise InvalidRequestError("two messages of one append have the same id")
    return records


def known(newest: Sequence[str], head: Head, records: Sequence[Record]) -> dict[str, int]:
    """Positions of those records whose ids are among the newest ones of the thread."""
    first = head.position - len(newest)
    places = {name: first + at for at, name in enumerate(newest)}
    return {record.id: places[record.id] for record in records if record.id in places}


@dataclass(frozen=True, slots=True)
class AppendPlan:
    """What an append adds, and what it answers."""

    new: tuple[Record, ...]
    result: AppendResult


def plan(
    session_id: str,
    records: Sequence[Record],
    head: Head,
    there: Mapping[int, Record],
    places: Mapping[str, int],
) -> AppendPlan:
    """Leave out what is there already.

    ``there`` are the messages at ``places``, by position.

    Raises:
        IdempotencyConflictError: An id stands there with other content.
    """
    for record in records:
        if record.id in places and there.get(places[record.id]) != record:
            raise IdempotencyConflictError(
                f"session {session_id!r}: message {record.id!r} stands in the thread with other content; "
                "an id stands for one content only",
                session_id=session_id,
                message_id=record.id,
            )
    new = tuple(record for record in records if record.id not in places)
    at = {**places, **{record.id: head.position + number for number, record in enumerate(new)}}
    if not records:
        return AppendPlan((), AppendResult(first_index=head.position, count=0, head=head))
    last = records[-1]
    end = Head(position=at[last.id] + 1, last_id=last.id)
    return AppendPlan(new, AppendResult(first_index=at[records[0].id], count=len(records), head=end))
