"""A session as an ordered log of a framework's items: what the sessions of all frameworks are made of."""

import asyncio
import json
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from helix_temporal._retries import repeat_unanswered, retry_pause
from helix_temporal.errors import (
    InvalidRequestError,
    SessionNotFoundError,
    StaleStateError,
    StoreCorruptError,
    StoreUnavailableError,
)
from helix_temporal.models.base import JsonObject
from helix_temporal.models.ids import validate_id
from helix_temporal.models.messages import Message
from helix_temporal.models.states import CreateSession, SessionState, StateChange
from helix_temporal.stores.protocols.sessions import SessionStore

T = TypeVar("T")
Fold = Callable[[SessionState], StateChange]

PAGE: Final = 200
_OVERTAKEN: Final = 100


class ItemLog:
    """Items of a framework in one session, as JSON objects; made by the first append.

    Args:
        store: Where it is.
        session_id: Its id in the store.
        item_format: What the items are, as their rows say: ``openai-agents/1``.
        create: What the session begins with.
        revives: An append begins a session anew that was deleted; otherwise it fails with
            `SessionNotFoundError`, as for ids that are never used twice.
    """

    def __init__(
        self,
        store: SessionStore,
        session_id: str,
        item_format: str,
        create: CreateSession | None = None,
        *,
        revives: bool = True,
    ) -> None:
        self._store, self._format, self._revives = store, item_format, revives
        self._session_id = validate_id(session_id, "session id")
        self._create = create or CreateSession()

    async def append_items(
        self,
        items: Sequence[JsonObject],
        *,
        names: Sequence[str | None] | None = None,
        fold: Fold | None = None,
    ) -> None:
        """Append the items in order, all or none; asked again where a store does not answer, they stand once.

        Args:
            items: To be appended.
            names: Of each item, where it has one: one whose name is among the newest 200 is there already.
            fold: What the session's state is to have of them, decided on the state as it is; it may be asked
                more than once.

        Raises:
            StoreUnavailableError: It did not answer five times; the items may be there or not.
            InvalidRequestError, TooLargeError: An item is no JSON, or too large.
        """
        if not items:
            return
        batch = secrets.token_hex(12)
        given = names or [None] * len(items)
        rows = [
            self._encode_item(name or f"{batch}/{at}", item)
            for at, (name, item) in enumerate(zip(given, items, strict=True))
        ]
        await repeat_unanswered(lambda: self._append_rows(rows, fold))

    async def read_items(self, limit: int | None = None) -> list[JsonObject]:
        """The newest ``limit`` items, or all, oldest first.

        Raises:
            StoreCorruptError: A row holds no item of this format.
        """
        if limit is not None and limit <= 0:
            return []
        for _ in range(_OVERTAKEN):
            rows = await self._read_rows(limit)
            if rows is not None:
                return [self._decode_item(row) for row in rows]
        raise StoreUnavailableError(f"session {self._session_id!r}: cut again and again while it was read")

    async def take_newest(self) -> JsonObject | None:
        """Take the newest item back; None if there is none.  Of several at once each gets another one."""
        name = secrets.token_hex(12)

        async def take() -> JsonObject | None:
            try:
                cut = await self._store.cut_messages(self._session_id, 1, operation_id=name)
            except (InvalidRequestError, SessionNotFoundError):
                if await self._store.get_message_count(self._session_id):
                    raise
                return None
            return self._decode_item(cut.messages[0])

        return await repeat_unanswered(take)

    async def clear_items(self) -> None:
        """Take all items back; the session stays."""
        name = secrets.token_hex(12)

        async def clear() -> None:
            if await self._store.session_exists(self._session_id):
                await self._store.truncate_messages(self._session_id, 0, operation_id=name)

        await repeat_unanswered(clear)

    async def _append_rows(self, rows: list[Message], fold: Fold | None) -> None:
        for attempt in range(_OVERTAKEN):
            try:
                change, version = await self._decide_change(fold)
                await self._store.append_messages(
                    self._session_id,
                    rows,
                    change=change,
                    expected_version=version,
                    on_duplicate="keep_first",
                )
            except SessionNotFoundError:
                await self._store.create_session(
                    self._session_id, self._create, if_not_exists=True, revive=self._revives
                )
            except StaleStateError:
                # Others wrote between look and append; rows that are there already are left out next time.
                await asyncio.sleep(retry_pause(attempt, first=0.001, longest=0.05))
            else:
                return
        raise StoreUnavailableError(f"session {self._session_id!r}: append was overtaken {_OVERTAKEN} times")

    async def _decide_change(self, fold: Fold | None) -> tuple[StateChange | None, int | None]:
        if fold is None:
            return None, None
        state = await self._store.load_state(self._session_id)
        if state is None:
            raise SessionNotFoundError(f"Session not found: {self._session_id!r}")
        return fold(state), state.version

    async def _read_rows(self, limit: int | None) -> list[Message] | None:
        """The newest rows, oldest first; None if some were cut, or replaced, between two pages."""
        newest = await self._store.get_messages(
            self._session_id, limit=min(limit or PAGE, PAGE), order="desc"
        )
        rows = list(reversed(newest.messages))
        first = newest.total - len(rows)
        start = 0 if limit is None else max(newest.total - limit, 0)
        if start == first:
            return rows
        # Up to the row where the newest page begins: it is there, last of all, if none before it was cut.
        earlier: list[Message] = []
        while start + len(earlier) <= first:
            offset = start + len(earlier)
            page = await self._store.get_messages(
                self._session_id, offset=offset, limit=min(first + 1 - offset, PAGE)
            )
            if not page.messages:
                return None
            earlier += page.messages
        return [*earlier[:-1], *rows] if earlier[-1].id == rows[0].id else None

    def _encode_item(self, row_id: str, item: JsonObject) -> Message:
        return encode_item(self._session_id, self._format, row_id, item)

    def _decode_item(self, row: Message) -> JsonObject:
        return decode_item(self._session_id, self._format, row)


def encode_item(session_id: str, item_format: str, row_id: str, item: JsonObject, **fields: Any) -> Message:
    """An item as a row of its own kind.

    Args:
        session_id: For errors.
        item_format: What the item is, as `ItemLog` has it.
        row_id: Of the row.
        item: The item.
        fields: Further fields of the message, which readers of items pass by.

    Raises:
        InvalidRequestError: The item is no JSON object, or has what JSON gives back as something else.
    """
    text = _encode_json(item)
    if text is None:
        raise InvalidRequestError(
            f"session {session_id!r}: an item ({type(item).__name__}) would not come back as it is; "
            "give dicts of JSON's values alone: text as keys, and no tuples, NaN or objects"
        )
    return Message(id=row_id, role="foreign", format=item_format, content=text, **fields)


def _encode_json(item: object) -> str | None:
    """A dict as JSON; None for whatever else, and for what JSON would give back as something else."""
    try:
        # Escaped: a lone surrogate or a NUL of a model's answer is no text that every store can keep.
        text = json.dumps(item, separators=(",", ":"), allow_nan=False)
        return text if isinstance(item, dict) and json.loads(text) == item else None
    except (TypeError, ValueError, RecursionError):
        return None


def decode_item(session_id: str, item_format: str, row: Message) -> JsonObject:
    """Inverse of `encode_item`.

    Raises:
        StoreCorruptError: The row holds no item of this format.
    """
    if row.role != "foreign" or row.format != item_format:
        raise StoreCorruptError(
            f"session {session_id!r}: message {row.id!r} is of format {row.format or row.role!r}, "
            f"and {item_format!r} was expected; is the session another framework's?"
        )
    item: JsonObject = json.loads(row.text)
    return item
