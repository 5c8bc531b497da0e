"""Claude Agent SDK: `InMemorySessionStore`, the only one that it installs, and `HelixSessionStore`.

Entries have a ``uuid``.  A transcript is loaded whole: the interface knows no newest entries.
"""

from collections.abc import Sequence
from typing import Any

from claude_agent_sdk import InMemorySessionStore

from bench.faults.stores import Item, OurBackends, Subject
from helix_temporal.frameworks.claude_agent_sdk import HelixSessionStore

_IN_MEMORY = InMemorySessionStore()
"""One for the process, as an application has it."""


class ClaudeTranscript:
    """One transcript of any store of the SDK, and what closes it."""

    def __init__(self, store: Any, session_id: str, close: Any) -> None:
        self._store, self._close = store, close
        self._key = {"project_key": "faults", "session_id": session_id}

    @classmethod
    async def open_memory(cls, address: str, session_id: str) -> "ClaudeTranscript":
        """The store of this process."""
        assert not address
        return cls(_IN_MEMORY, session_id, None)

    @classmethod
    async def open_ours(cls, address: str, session_id: str) -> "ClaudeTranscript":
        """Backends of its own."""
        backends = await OurBackends.open(address)
        return cls(HelixSessionStore(backends.sessions), session_id, backends.close)

    async def append(self, items: Sequence[Item]) -> None:
        """One batch, as the mirror sends it."""
        entries = [
            {
                "type": each.role,
                "uuid": each.name,
                "message": {"role": each.role, "content": each.text},
            }
            for each in items
        ]
        await self._store.append(self._key, entries)

    async def read(self, newest: int | None = None) -> list[str]:
        """All entries, and the newest of them."""
        found = [each["message"]["content"] for each in await self._store.load(self._key) or []]
        return found if newest is None else found[-newest:]

    async def refresh(self) -> None:
        """It holds nothing."""

    async def delete(self) -> None:
        """The transcript."""
        await self._store.delete(self._key)

    async def close(self) -> None:
        """Close the connections."""
        if self._close is not None:
            await self._close()


SUBJECTS = [
    Subject("InMemorySessionStore", "memory", ClaudeTranscript.open_memory),
    Subject("HelixSessionStore, PostgreSQL", "postgres", ClaudeTranscript.open_ours, ours=True),
    Subject("HelixSessionStore, Redis", "redis", ClaudeTranscript.open_ours, ours=True),
]
