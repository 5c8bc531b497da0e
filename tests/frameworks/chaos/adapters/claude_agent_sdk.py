"""Turns through `HelixSessionStore`, whose entries have a uuid: a batch of unknown fate is sent again."""

from typing import Any, Final

from helix_temporal.frameworks.claude_agent_sdk import HelixSessionStore
from helix_temporal.stores.protocols.sessions import SessionStore

NAMED = True
SESSION = "claude/~5b~22chaos~22~2c~20~22chaos~22~5d"
_KEY: Final[Any] = {"project_key": "chaos", "session_id": "chaos"}


async def append_turn(store: SessionStore, name: str) -> None:
    """A question and an answer, as the mirror sends them."""
    entries: list[Any] = [
        {"type": role, "uuid": f"{name} {part}", "message": {"role": role, "content": f"{name} {part}"}}
        for role, part in (("user", "q"), ("assistant", "a"))
    ]
    await HelixSessionStore(store).append(_KEY, entries)


async def read_texts(store: SessionStore) -> list[str]:
    """All that stands."""
    entries: Any = await HelixSessionStore(store).load(_KEY)
    return [each["message"]["content"] for each in entries or []]
