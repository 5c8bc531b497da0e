"""Turns through `HelixSessionStore`, whose entries have a uuid: a batch of unknown fate is sent again."""

from typing import Any, Final

from helix_temporal import Backends
from helix_temporal.frameworks.claude_agent_sdk import HelixSessionStore

NAMED = True
_KEY: Final[Any] = {"project_key": "chaos", "session_id": "chaos"}


async def append_turn(backends: Backends, name: str) -> None:
    """A question and an answer, as the mirror sends them."""
    entries: list[Any] = [
        {"type": role, "uuid": f"{name} {part}", "message": {"role": role, "content": f"{name} {part}"}}
        for role, part in (("user", "q"), ("assistant", "a"))
    ]
    await HelixSessionStore(backends.sessions).append(_KEY, entries)


async def read_texts(backends: Backends) -> list[str]:
    """All that stands."""
    entries: Any = await HelixSessionStore(backends.sessions).load(_KEY)
    return [each["message"]["content"] for each in entries or []]
