"""Turns through `HelixConversationStore`: who is overtaken by another turn loads again and saves anew."""

from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart

from helix_temporal import Backends
from helix_temporal.frameworks.pydantic_ai import HelixConversationStore

NAMED = True


async def append_turn(backends: Backends, name: str) -> None:
    """A question and an answer, as a run saves them."""
    new: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart(content=f"{name} q")]),
        ModelResponse(parts=[TextPart(content=f"{name} a")]),
    ]
    while True:
        store = HelixConversationStore(backends.sessions)
        conversation = await store.load("chaos") or Conversation(conversation_id="chaos")
        if f"{name} q" in _list_texts(conversation):
            return
        conversation.messages = [*conversation.messages, *new]
        try:
            await store.save(conversation)
        except ConversationConflict:
            continue
        return


async def read_texts(backends: Backends) -> list[str]:
    """All that stands."""
    conversation = await HelixConversationStore(backends.sessions).load("chaos")
    return [] if conversation is None else _list_texts(conversation)


def _list_texts(conversation: Conversation) -> list[str]:
    return [str(part.content) for message in conversation.messages for part in message.parts]
