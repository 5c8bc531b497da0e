"""pydantic-ai: `InMemoryConversationStore`, the only one that it has, and `HelixConversationStore`.

A conversation is loaded, grows and is saved; whoever is refused loads it again.
"""

from collections.abc import Sequence
from typing import Any

from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import InMemoryConversationStore
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart

from bench.faults.stores import Item, OurBackends, Subject
from helix_temporal.frameworks.pydantic_ai import HelixConversationStore

_IN_MEMORY = InMemoryConversationStore()
"""One for the process, as an application has it."""


class StoredConversation:
    """One conversation of any store, and what closes it."""

    def __init__(self, store: Any, conversation_id: str, close: Any) -> None:
        self._store, self._id, self._close = store, conversation_id, close
        self._loaded: Conversation | None = None

    @classmethod
    async def open_memory(cls, address: str, conversation_id: str) -> "StoredConversation":
        """The store of this process."""
        assert not address
        return cls(_IN_MEMORY, conversation_id, None)

    @classmethod
    async def open_ours(cls, address: str, conversation_id: str) -> "StoredConversation":
        """Backends of its own."""
        backends = await OurBackends.open(address)
        return cls(HelixConversationStore(backends.sessions), conversation_id, backends.close)

    async def append(self, items: Sequence[Item]) -> None:
        """The run's messages behind those that were loaded."""
        if self._loaded is None:
            await self.refresh()
        assert self._loaded is not None
        before = list(self._loaded.messages)
        self._loaded.messages = [*before, *(_make_message(each) for each in items)]
        try:
            await self._store.save(self._loaded)
        except BaseException:
            self._loaded.messages = before
            raise

    async def read(self, newest: int | None = None) -> list[str]:
        """The conversation, or its end."""
        found = await self._store.load(self._id, limit=newest)
        return [] if found is None else [each.parts[0].content for each in found.messages]

    async def refresh(self) -> None:
        """Load it; it begins where there is none."""
        found = await self._store.load(self._id)
        self._loaded = found or Conversation(messages=[], conversation_id=self._id)

    async def delete(self) -> None:
        """The conversation."""
        await self._store.delete(self._id)

    async def close(self) -> None:
        """Close the connections."""
        if self._close is not None:
            await self._close()


def _make_message(item: Item) -> Any:
    if item.role == "user":
        return ModelRequest(parts=[UserPromptPart(item.text)])
    return ModelResponse(parts=[TextPart(item.text)])


SUBJECTS = [
    Subject("InMemoryConversationStore", "memory", StoredConversation.open_memory),
    Subject("HelixConversationStore, PostgreSQL", "postgres", StoredConversation.open_ours, ours=True),
    Subject("HelixConversationStore, Redis", "redis", StoredConversation.open_ours, ours=True),
]
