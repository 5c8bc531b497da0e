"""Events of ADK as rows of a session's thread."""

import json
from dataclasses import dataclass
from typing import Any, Final

from google.adk.events.event import Event

from helix_temporal.errors import InvalidRequestError, StoreCorruptError
from helix_temporal.frameworks.google_adk.keys import EVENT_FORMAT
from helix_temporal.frameworks.google_adk.state import StateParts, split_state
from helix_temporal.models.messages import Message
from helix_temporal.stores.protocols.sessions import SessionStore

PAGE: Final = 200


def encode_event(event: Event) -> Message:
    """An event as a row under its id.

    Raises:
        InvalidRequestError: It holds something that is no JSON.
        InvalidIdError: Its id is none that a store can keep.
    """
    try:
        plain = event.model_dump(mode="json", exclude_none=True)
        # Escaped: a lone surrogate or a NUL of a model's answer is no text that every store can keep.
        text = json.dumps(plain, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"event {event.id!r} is no JSON ({type(error).__name__})") from None
    return Message(id=event.id, role="foreign", format=EVENT_FORMAT, content=text)


def decode_event(row: Message) -> Event:
    """The inverse of `encode_event`.

    Raises:
        StoreCorruptError: The row holds no event.
    """
    if row.role != "foreign" or row.format != EVENT_FORMAT:
        raise StoreCorruptError(
            f"message {row.id!r} is of format {row.format or row.role!r}, and {EVENT_FORMAT!r} was expected"
        )
    event: Event = Event.model_validate(json.loads(row.text))
    return event


def is_same_event(row: Message, other: Message) -> bool:
    """Whether two rows hold the same event; a turn that is done again makes it at another time."""
    if row.id != other.id or row == other:
        return row == other
    first, second = (
        {name: value for name, value in json.loads(each.text).items() if name != "timestamp"}
        for each in (row, other)
    )
    return bool(first == second)


@dataclass(frozen=True, slots=True)
class EventFacts:
    """What a session keeps of an event, read from its row: whoever reads the row finds the same.

    Attributes:
        delta: Its change of the state.
        time: In seconds since 1970.
    """

    event_id: str
    delta: StateParts
    time: float

    @staticmethod
    def read_from(row: Message) -> "EventFacts":
        """The facts of a row."""
        plain = json.loads(row.text)
        delta = (plain.get("actions") or {}).get("state_delta")
        return EventFacts(row.id, split_state(delta), float(plain["timestamp"]))


class EventRows:
    """Reads the rows of sessions, from the end of their threads.

    Args:
        store: Where they are.
    """

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def read_newest(
        self, session_id: str, limit: int | None = None, since: float | None = None
    ) -> tuple[int | None, list[Event]]:
        """How many events there are, and the newest ``limit`` of them, oldest first.

        Args:
            session_id: Whose.
            limit: At most so many; None for all.  Nothing is read for 0, and not counted.
            since: Only those behind the last one that is earlier than this time, in seconds.
        """
        if limit == 0:
            return None, []
        total, rows = await self._read_end(session_id, min(limit or PAGE, PAGE))
        events = [decode_event(row) for row in rows]
        first = total - len(rows)
        while first > 0 and (limit is None or len(events) < limit) and not _has_earlier(events, since):
            size = min(first, PAGE if limit is None else min(limit - len(events), PAGE))
            page = await self._store.get_messages(session_id, offset=first - size, limit=size)
            events = [*map(decode_event, page.messages), *events]
            first -= size
        return total, _leave_out_earlier(events, since)

    async def read_behind(self, session_id: str, position: int) -> tuple[int, list[Event]]:
        """How many events there are, and those from a position on."""
        events: list[Event] = []
        while True:
            page = await self._store.get_messages(session_id, offset=position + len(events), limit=PAGE)
            events += map(decode_event, page.messages)
            if not page.has_more:
                return page.total, events

    async def read_row(self, session_id: str, position: int) -> Message | None:
        """The row at a position, if there is one."""
        page = await self._store.get_messages(session_id, offset=position, limit=1)
        return page.messages[0] if page.messages else None

    async def read_newest_rows(self, session_id: str, limit: int = PAGE) -> list[Message]:
        """The newest rows: by default as far as an append looks for an id."""
        return (await self._read_end(session_id, limit))[1]

    async def _read_end(self, session_id: str, limit: int) -> tuple[int, list[Message]]:
        page = await self._store.get_messages(session_id, limit=limit, order="desc")
        return page.total, list(reversed(page.messages))


def _has_earlier(events: list[Event], since: float | None) -> bool:
    return since is not None and any(each.timestamp < since for each in events)


def _leave_out_earlier(events: list[Event], since: float | None) -> list[Event]:
    if since is None:
        return events
    last: Any = max((at for at, each in enumerate(events) if each.timestamp < since), default=-1)
    return events[last + 1 :]
