"""Histories of Microsoft's agent-framework: ``Agent(…, context_providers=[HelixHistoryProvider(store)])``."""

import json
from collections.abc import Sequence
from typing import Any, Final

from agent_framework import HistoryProvider, Message

from helix_temporal.errors import InvalidIdError, StoreCorruptError
from helix_temporal.frameworks.given_stores import check_sessions
from helix_temporal.frameworks.item_log import ItemLog
from helix_temporal.models.ids import encode_id, validate_id
from helix_temporal.models.states import CreateSession
from helix_temporal.stores.protocols.sessions import SessionStore

MESSAGE_FORMAT: Final = "agent-framework/1"
DEFAULT_SOURCE_ID: Final = "helix"
_KIND: Final = "agent-framework"


class HelixHistoryProvider(HistoryProvider):
    """A `HistoryProvider` of agent-framework over a session store; several processes may share a session.

    What a run saves is one atomic append.  One that is repeated since the store did not answer stands once,
    and so does a message that is saved again under its ``message_id``.

    Args:
        store: `Backends.sessions`, or another session store.
        source_id: The provider's name in the agent.  Providers of two names have two histories of a session.
        limit: How many of the newest messages a run is given; None for all.  Nothing is trimmed in the store,
            and results whose call is left out are left out too.
        skip_excluded: Leave out messages that a compaction has marked, as the framework's own providers do.
        user_id: Whose conversations these are, for lists; stored when one begins.
        load_messages, store_inputs, store_context_messages, store_context_from, store_outputs: As in every
            `HistoryProvider`.
    """

    def __init__(
        self,
        store: SessionStore,
        source_id: str = DEFAULT_SOURCE_ID,
        *,
        limit: int | None = None,
        skip_excluded: bool = False,
        user_id: str | None = None,
        load_messages: bool = True,
        store_inputs: bool = True,
        store_context_messages: bool = False,
        store_context_from: set[str] | None = None,
        store_outputs: bool = True,
    ) -> None:
        super().__init__(
            source_id,
            load_messages=load_messages,
            store_inputs=store_inputs,
            store_context_messages=store_context_messages,
            store_context_from=store_context_from,
            store_outputs=store_outputs,
        )
        check_sessions(store)
        self._store, self._limit, self._skip_excluded = store, limit, skip_excluded
        self._create = CreateSession(agent_type=_KIND, user_id=user_id)

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        """The messages of a session, or the newest ``limit``, oldest first; none if it was deleted.

        Raises:
            StoreCorruptError: A row holds no message of the framework's.
        """
        del state, kwargs  # of providers that keep their history in the session
        rows = await self._open_log(session_id).read_items(self._limit)
        messages = [_decode_message(session_id, row) for row in rows]
        if self._skip_excluded:
            messages = [each for each in messages if not each.additional_properties.get("_excluded", False)]
        return messages if self._limit is None else _drop_results_without_call(messages)

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Append messages, all or none.

        A transcript that comes again in front of new messages, as workflows send it, is left out.

        Raises:
            SessionNotFoundError: The session was deleted: a run that ends later does not bring it back.
            StoreUnavailableError: The store did not answer; the messages may be there or not.
        """
        del state, kwargs
        log = self._open_log(session_id)
        items = [_encode_message(each) for each in messages]
        # Two messages are no replay yet: a user may say, and be told, the same twice.
        if len(items) > 2:
            items = items[_count_replayed(await log.read_items(len(items)), items) :]
        await log.append_items(items, names=_find_names(items))

    async def clear(self, session_id: str | None) -> None:
        """Take all messages back; the session goes on."""
        await self._open_log(session_id).clear_items()

    async def delete(self, session_id: str | None) -> None:
        """Delete a session for good; nothing if there is none.  Its id cannot be used again."""
        await self._store.delete_session(self._find_id(session_id))

    def _open_log(self, session_id: str | None) -> ItemLog:
        return ItemLog(self._store, self._find_id(session_id), MESSAGE_FORMAT, self._create, revives=False)

    def _find_id(self, session_id: str | None) -> str:
        validate_id(session_id, "session id of the agent")
        # Another name stands before the first slash, where nothing of a session's id can come.
        source = "" if self.source_id == DEFAULT_SOURCE_ID else f".{encode_id(self.source_id)}"
        return f"{_KIND}{source}/{session_id}"


def _encode_message(message: Message) -> dict[str, Any]:
    item: dict[str, Any] = message.to_dict()
    return item


def _decode_message(session_id: str | None, row: dict[str, Any]) -> Message:
    try:
        return Message.from_dict(row)
    except (TypeError, ValueError, KeyError) as error:
        raise StoreCorruptError(
            f"session {session_id!r}: a row is no message of agent-framework ({type(error).__name__})"
        ) from None


def _find_names(items: list[dict[str, Any]]) -> list[str | None]:
    """The messages' own ids, where they have one that no other message of the batch has."""
    names: list[str | None] = []
    for item in items:
        try:
            name = validate_id(item.get("message_id"))
        except InvalidIdError:
            names.append(None)
        else:
            names.append(None if name in names else name)
    return names


def _count_replayed(stored: list[dict[str, Any]], items: list[dict[str, Any]]) -> int:
    """How many of the first items are the newest stored ones once more, with something new behind them."""
    before, given = [_identify(each) for each in stored], [_identify(each) for each in items]
    for count in range(min(len(before), len(given) - 1), 1, -1):
        if before[-count:] == given[:count]:
            return count
    return 0


def _identify(item: dict[str, Any]) -> tuple[str, ...]:
    """What the framework takes for the same message: its id, or else role and contents."""
    name = item.get("message_id")
    if name is not None:
        return ("id", str(name))
    return (str(item.get("role")), json.dumps(item.get("contents"), sort_keys=True, default=str))


def _drop_results_without_call(messages: list[Message]) -> list[Message]:
    """Without results that a window begins with: services refuse one whose call they are not told."""
    called: set[str | None] = set()
    kept = []
    for message in messages:
        results = [each for each in message.contents if each.type == "function_result"]
        if any(each.call_id not in called for each in results):
            continue
        called |= {each.call_id for each in message.contents if each.type == "function_call"}
        kept.append(message)
    return kept
