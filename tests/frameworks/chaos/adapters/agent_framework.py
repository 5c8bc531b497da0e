"""Turns through `HelixHistoryProvider`, whose messages have ids: a turn of unknown fate is saved again."""

from agent_framework import Message

from helix_temporal.frameworks.agent_framework import HelixHistoryProvider
from helix_temporal.stores.protocols.sessions import SessionStore

NAMED = True
SESSION = "agent-framework/chaos"


async def append_turn(store: SessionStore, name: str) -> None:
    """A question and an answer, as a run saves them."""
    texts = (("user", f"{name} q"), ("assistant", f"{name} a"))
    messages = [Message(role, [text], message_id=text) for role, text in texts]
    await HelixHistoryProvider(store).save_messages("chaos", messages)


async def read_texts(store: SessionStore) -> list[str]:
    """All that stands."""
    return [each.text for each in await HelixHistoryProvider(store).get_messages("chaos")]
