"""Turns through `HelixSession`: the SDK gives an item of a user no name, so a turn is never repeated."""

from typing import Any

from helix_temporal.frameworks.openai_agents import HelixSession
from helix_temporal.stores.protocols.sessions import SessionStore

NAMED = False
SESSION = "openai-agents/chaos"


async def append_turn(store: SessionStore, name: str) -> None:
    """A question and an answer, as the runner adds them."""
    items: list[Any] = [
        {"role": "user", "content": f"{name} q"},
        {"role": "assistant", "content": f"{name} a"},
    ]
    await HelixSession("chaos", store).add_items(items)


async def read_texts(store: SessionStore) -> list[str]:
    """All that stands."""
    items: list[Any] = await HelixSession("chaos", store).get_items()
    return [each["content"] for each in items]
