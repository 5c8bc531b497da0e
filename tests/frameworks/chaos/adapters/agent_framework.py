"""Turns through `HelixHistoryProvider`, whose messages have ids: a turn of unknown fate is saved again."""

from agent_framework import Message

from helix_temporal import Backends
from helix_temporal.frameworks.agent_framework import HelixHistoryProvider

NAMED = True


async def append_turn(backends: Backends, name: str) -> None:
    """A question and an answer, as a run saves them."""
    texts = (("user", f"{name} q"), ("assistant", f"{name} a"))
    messages = [Message(role, [text], message_id=text) for role, text in texts]
    await HelixHistoryProvider(backends.sessions).save_messages("chaos", messages)


async def read_texts(backends: Backends) -> list[str]:
    """All that stands."""
    return [each.text for each in await HelixHistoryProvider(backends.sessions).get_messages("chaos")]
