"""What the tests of pydantic-ai's conversations are made of."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart

from helix_temporal.errors import StoreUnavailableError
from helix_temporal.stores.protocols.sessions import SessionStore

WHEN = datetime(2026, 1, 1, tzinfo=UTC)


def asked(text: str) -> ModelMessage:
    """A request."""
    return ModelRequest(parts=[UserPromptPart(content=text, timestamp=WHEN)], timestamp=WHEN)


def said(text: str) -> ModelMessage:
    """A response."""
    return ModelResponse(parts=[TextPart(content=text)], timestamp=WHEN)


def turns(count: int, first: int = 0) -> list[ModelMessage]:
    """Requests and their responses."""
    return [each(str(n)) for n in range(first, first + count) for each in (asked, said)]


def texts(messages: Sequence[Any]) -> list[str]:
    """What the messages, or the messages of entries, say."""
    return [getattr(each, "message", each).parts[0].content for each in messages]


def entry(text: str, parent: ConversationEntry | str | None = None, **named: Any) -> ConversationEntry:
    """An entry with a new id."""
    parent_id = parent.id if isinstance(parent, ConversationEntry) else parent
    return ConversationEntry(parent_id=parent_id, message=asked(text), **named)


async def begin(store: ConversationStore, conversation_id: str, count: int = 1, **named: Any) -> Conversation:
    """A conversation of some turns, as it was saved."""
    conversation = Conversation(conversation_id=conversation_id, messages=turns(count))
    await store.save(conversation, **named)
    return conversation


async def extend(store: ConversationStore, conversation: Conversation, *more: str) -> list[ConversationEntry]:
    """Add requests, and save them."""
    conversation.messages = [*conversation.messages, *map(asked, more)]
    entries: list[ConversationEntry] = await store.save(conversation)
    return entries


async def load(store: ConversationStore, conversation_id: str, **named: Any) -> Conversation:
    """A conversation that is there."""
    found = await store.load(conversation_id, **named)
    assert found is not None
    return found


async def succeeds(action: Any) -> bool:
    """Whether there was no conflict."""
    try:
        await action
    except ConversationConflict:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Pause:
    """Calls of a method wait until it is over."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Watched:
    """A session store that counts what is read, and loses answers, before or after their effect.

    Attributes:
        rows: Messages that were read, and how often.
        calls: Names of the methods that were called.
        losses: Those to come, such as ``after append_messages``.
        spared: So many calls that fit the first of them pass before.
    """

    def __init__(self, inner: SessionStore) -> None:
        self.inner = inner
        self.rows = 0
        self.calls: list[str] = []
        self.losses: list[str] = []
        self.spared = 0
        self._pauses: dict[str, Pause] = {}

    def pause(self, name: str) -> Pause:
        """Let calls of a method wait."""
        return self._pauses.setdefault(name, Pause())

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.inner, name)

        async def watched(*arguments: Any, **named: Any) -> Any:
            self.calls.append(name)
            if name in self._pauses:
                self._pauses[name].reached.set()
                await self._pauses[name].over.wait()
            self._lose(f"before {name}")
            answer = await call(*arguments, **named)
            self.rows += len(answer.messages) if name == "get_messages" else 0
            self._lose(f"after {name}")
            return answer

        return watched

    def _lose(self, what: str) -> None:
        if what in self.losses and self.spared:
            self.spared -= 1
        elif what in self.losses:
            self.losses.remove(what)
            raise StoreUnavailableError(f"{what}: no reply")


class Twins(ConversationStore):
    """Two stores that are asked the same, and must answer the same."""

    def __init__(self, ours: ConversationStore) -> None:
        self.ours, self.reference = ours, InMemoryConversationStore()

    async def _ask(self, method: str, *arguments: Any, **named: Any) -> Any:
        expected, refusal = await self._try(self.reference, method, *arguments, **named)
        answer, refused = await self._try(self.ours, method, *arguments, **named)
        assert answer == expected
        assert isinstance(refused, type(refusal)), (method, refusal, refused)
        if refusal is not None:
            raise refusal
        return expected

    async def _try(
        self, store: ConversationStore, method: str, *arguments: Any, **named: Any
    ) -> tuple[Any, Exception | None]:
        try:
            return await getattr(store, method)(*arguments, **named), None
        except (ConversationConflict, LookupError) as error:
            return None, error

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Of both."""
        return await self._ask("read_record", conversation_id)

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """Of both."""
        return list(await self._ask("read_records", scope=scope, limit=limit))

    async def write_record(self, record: ConversationRecord, **named: Any) -> None:
        """To both."""
        await self._ask("write_record", record, **named)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Of both."""
        await self._ask("delete_record", conversation_id, expected_revision=expected_revision)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Of both."""
        return await self._ask("read_entry", entry_id)

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """Of both."""
        return list(await self._ask("read_history", head_id, limit=limit))


@dataclass(frozen=True, slots=True)
class Posted:
    """What a server answered."""

    status: int
    body: str


def ag_ui_body(message_id: str) -> dict[str, Any]:
    """What a client of AG-UI sends: the new message alone."""
    message = {"id": message_id, "role": "user", "content": "Where is NL-20417?"}
    run = {"threadId": "thread-1", "runId": message_id, "messages": [message], "tools": [], "context": []}
    return {**run, "state": {}, "forwardedProps": {}}


def vercel_body(message_id: str) -> dict[str, Any]:
    """What a client of Vercel's AI SDK sends."""
    part = {"type": "text", "text": "Where is NL-20417?"}
    message = {"id": message_id, "role": "user", "parts": [part]}
    return {"id": "thread-1", "trigger": "submit-message", "messages": [message]}


async def post(app: Any, user: str, body: dict[str, Any]) -> Posted:
    """Send JSON to an ASGI application."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "path": "/chat",
        "raw_path": b"/chat",
        "root_path": "",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), (b"x-user", user.encode())],
    }
    request = {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}
    given, answers = [request], list[Any]()

    async def receive() -> Any:
        return given.pop() if given else await asyncio.Event().wait()

    async def send(answer: Any) -> None:
        answers.append(answer)

    await app(scope, receive, send)
    text = b"".join(each.get("body", b"") for each in answers).decode()
    return Posted(answers[0]["status"], text)
