"""Entries that each name the one before them, as rows of sessions: histories share what they have in common.

An entry is a row of the session it was appended to, under its own id.  Most rows follow the row before them;
the others say where the entry before them lies: further up in the session, or in another one.
"""

import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from helix_temporal.errors import NotFoundError, StoreCorruptError
from helix_temporal.models.messages import Message
from helix_temporal.models.store_calls import OrderBy, SessionQuery
from helix_temporal.models.stored_messages import EMPTY, Head
from helix_temporal.stores.protocols.sessions import SessionStore

PAGE: Final = 200
REMEMBERED: Final = 20_000
"""Places of entries that this process has read or written last; others are searched for."""
_TOLERANCE: Final = 24 * 3600 * 1000
_PARENT: Final = "parent"
_AT: Final = "parent_at"
_KIND: Final = "kind"


class EntryNotFoundError(NotFoundError, LookupError):
    """No entry of this id is stored."""


class EntryPlace(NamedTuple):
    """Where an entry was put.  Its row says whether it is still there: positions are hints."""

    session_id: str
    at: int


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """An entry as it is stored.

    Attributes:
        parent_id: The entry before it; None for the first of a history.
        text: Its content, JSON.
        kind: What it holds.
    """

    id: str
    parent_id: str | None
    text: str
    kind: str


class EntryTree:
    """The entries of all conversations of one kind.

    Args:
        store: Where they are.
        row_format: What their rows say that they are: ``pydantic-ai/1``.
        agent_types: Of the sessions that hold some, for searches.
    """

    def __init__(self, store: SessionStore, row_format: str, agent_types: Sequence[str]) -> None:
        self._store, self._format, self._agent_types = store, row_format, tuple(agent_types)
        self._places: OrderedDict[str, EntryPlace] = OrderedDict()

    def remember_place(self, entry_id: str, place: EntryPlace) -> None:
        """Keep in this process's memory where an entry lies."""
        self._places[entry_id] = place
        self._places.move_to_end(entry_id)
        while len(self._places) > REMEMBERED:
            self._places.popitem(last=False)

    def recall_place(self, entry_id: str) -> EntryPlace | None:
        """Where this process last saw an entry; None if it does not know."""
        return self._places.get(entry_id)

    def encode_entry(self, entry: TreeEntry, place: EntryPlace, parent: EntryPlace | None) -> Message:
        """The row of an entry that is put at ``place``, with its parent at ``parent``."""
        metadata: dict[str, Any] = {_PARENT: entry.parent_id}
        if parent is not None and parent != (place.session_id, place.at - 1):
            metadata[_AT] = list(parent)
        if entry.kind != "message":
            metadata[_KIND] = entry.kind
        return Message(
            id=entry.id, role="foreign", format=self._format, content=entry.text, metadata=metadata
        )

    async def read_history(self, last_id: str | None, limit: int | None = None) -> list[TreeEntry]:
        """The last ``limit`` entries up to ``last_id``, or all, oldest first; only their pages are read.

        Raises:
            EntryNotFoundError: One of them is not stored (any more).
            StoreCorruptError: A row holds no entry.
        """
        found: list[TreeEntry] = []
        wanted, hint = last_id, None
        while wanted is not None and (limit is None or len(found) < limit):
            most = PAGE if limit is None else min(limit - len(found), PAGE)
            for row, place in await self._read_up_to(wanted, hint, most):
                if row.id != wanted:
                    break
                found.append(self._decode_entry(row))
                self.remember_place(row.id, place)
                wanted, hint = found[-1].parent_id, _parent_place(row) or place._replace(at=place.at - 1)
        return found[::-1]

    async def find_place(self, entry_id: str) -> EntryPlace:
        """Where an entry lies.

        Raises:
            EntryNotFoundError: It is not stored.
        """
        ((_, place),) = await self._read_up_to(entry_id, None, 1)
        return place

    async def read_end(self, session_id: str) -> Head:
        """Where the rows of a session end."""
        count = await self._store.get_message_count(session_id)
        rows = await self._read_back(EntryPlace(session_id, count - 1), 1) if count else []
        return Head(position=count, last_id=rows[0][0].id) if rows else EMPTY

    async def search_session(self, session_id: str, entry_id: str) -> EntryPlace | None:
        """Look through a session from its newest row for an entry; None if it is not there."""
        end = await self._store.get_message_count(session_id)
        while end > 0:
            for row, place in await self._read_back(EntryPlace(session_id, end - 1), PAGE):
                if row.id == entry_id:
                    return place
            end -= PAGE
        return None

    async def _read_up_to(
        self, entry_id: str, hint: EntryPlace | None, most: int
    ) -> list[tuple[Message, EntryPlace]]:
        """The entry's row and up to ``most`` with those before it, newest first.

        The row is where a hint says, or this process's memory; or else it is searched for.
        """
        told = [place for place in (hint, self._places.get(entry_id)) if place is not None and place.at >= 0]
        for place in dict.fromkeys(told):
            rows = await self._read_back(place, most)
            if rows and rows[0][0].id == entry_id:
                return rows
        found = await self._search_entry(entry_id, dict.fromkeys(place.session_id for place in told))
        if found is None:
            raise EntryNotFoundError(f"Entry not found: {entry_id!r} is in no conversation of this store")
        self.remember_place(entry_id, found)
        return await self._read_back(found, most)

    async def _search_entry(self, entry_id: str, likely: Iterable[str]) -> EntryPlace | None:
        for session_id in likely:
            found = await self.search_session(session_id, entry_id)
            if found is not None:
                return found
        async for session_id in self._list_candidates(_minted_at(entry_id)):
            found = await self.search_session(session_id, entry_id)
            if found is not None:
                return found
        return None

    async def _read_back(self, place: EntryPlace, most: int) -> list[tuple[Message, EntryPlace]]:
        """Up to ``most`` rows that end at a place, newest first."""
        first = max(place.at - most + 1, 0)
        page = await self._store.get_messages(place.session_id, offset=first, limit=place.at + 1 - first)
        rows = [(row, place._replace(at=first + number)) for number, row in enumerate(page.messages)]
        return rows[::-1]

    async def _list_candidates(self, minted_at: int | None) -> AsyncIterator[str]:
        """Sessions that were there when an id was minted, and changed since; all if the id tells no time."""
        since = None if minted_at is None else max(minted_at - _TOLERANCE, 0)
        for agent_type in self._agent_types:
            query = SessionQuery(
                agent_type=agent_type,
                date_field="updated_at",
                date_from=since,
                order_by=OrderBy(direction="asc"),
                limit=PAGE,
            )
            cursor: str | None = None
            while True:
                page = await self._store.list_sessions(query.model_copy(update={"cursor": cursor}))
                for each in page.sessions:
                    if minted_at is None or each.created_at <= minted_at + _TOLERANCE:
                        yield each.session_id
                cursor = page.next_cursor
                if cursor is None:
                    break

    def _decode_entry(self, row: Message) -> TreeEntry:
        if row.role != "foreign" or row.format != self._format or _PARENT not in row.metadata:
            raise StoreCorruptError(
                f"message {row.id!r} is of format {row.format or row.role!r}, and an entry of "
                f"{self._format!r} was expected; was its session written by something else?"
            )
        parent_id: Any = row.metadata[_PARENT]
        return TreeEntry(row.id, parent_id, row.text, str(row.metadata.get(_KIND, "message")))


def _parent_place(row: Message) -> EntryPlace | None:
    told: Any = row.metadata.get(_AT)
    return None if told is None else EntryPlace(*told)


def _minted_at(entry_id: str) -> int | None:
    """The time in an id, ms since 1970; None if it is no UUID of version 7."""
    try:
        parsed = uuid.UUID(entry_id)
    except ValueError:
        return None
    return parsed.int >> 80 if parsed.version == 7 else None
