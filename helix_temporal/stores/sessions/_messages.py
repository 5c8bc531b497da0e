"""Pure: messages that are to be appended, and what of them is there."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from helix_temporal.errors import IdempotencyConflictError, InvalidRequestError
from helix_temporal.models.messages import Message
from helix_temporal.models.queries import AppendResult
from helix_temporal.models.records import Head, Record, head_after
from helix_temporal.models.rows import records_of
from helix_temporal.stores.sessions._checks import checked


def to_records(messages: Sequence[Message]) -> tuple[Record, ...]:
    """The messages as a thread keeps them.

    Raises:
        InvalidRequestError: Two have the same id.
        InvalidMessageError, TooLargeError: One cannot be kept.
    """
    records = records_of([checked(message, Message) for message in messages])
    if len({record.id for record in records}) < len(records):
        raise InvalidRequestError("two messages of one append have the same id")
    return records


def known(newest: Sequence[str], head: Head, records: Sequence[Record]) -> dict[str, int]:
    """Positions of those records whose ids are among the newest ones of the thread."""
    first = head.position - len(newest)
    places = {name: first + at for at, name in enumerate(newest)}
    return {record.id: places[record.id] for record in records if record.id in places}


DEDUP: Final = 200
"""Among so many of the newest messages an append looks for its own."""


@dataclass(frozen=True, slots=True)
class Known:
    """Where a thread stood after an append of this process, and the ids of its newest messages."""

    epoch: int
    head: Head
    newest: tuple[str, ...]

    def after(self, new: Sequence[Record]) -> "Known":
        """The same once these are appended."""
        newest = (*self.newest, *(record.id for record in new))
        return Known(self.epoch, head_after(self.head, new), newest[-max(DEDUP, len(new)) :])


class KnownThreads:
    """What this process knows of threads that it appended to; a thread may have moved since.

    An append at a head that is known so is as good as one after a look: it happens there or not at all.
    """

    def __init__(self, limit: int = 1024) -> None:
        self._limit = limit
        self._known: OrderedDict[str, Known] = OrderedDict()

    def keep(self, session_id: str, known: Known) -> None:
        """Remember it, and forget what was not used for longest."""
        self._known[session_id] = known
        self._known.move_to_end(session_id)
        if len(self._known) > self._limit:
            self._known.popitem(last=False)

    def take(self, session_id: str) -> Known | None:
        """What is known, once."""
        return self._known.pop(session_id, None)


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
