"""Turns through `HelixSession`: the SDK gives an item of a user no name, so a turn is never repeated."""

from typing import Any

from helix_temporal import Backends
from helix_temporal.frameworks.openai_agents import HelixSession

NAMED = False


async def append_turn(backends: Backends, name: str) -> None:
    """A question and an answer, as the runner adds them."""
    items: list[Any] = [
        {"role": "user", "content": f"{name} q"},
        {"role": "assistant", "content": f"{name} a"},
    ]
    await HelixSession("chaos", backends.sessions).add_items(items)


async def read_texts(backends: Backends) -> list[str]:
    """All that stands."""
    items: list[Any] = await HelixSession("chaos", backends.sessions).get_items()
    return [each["content"] for each in items]
