"""How tests talk to an adapter: requests, and a thread as a store gives it back."""

import hashlib
from collections.abc import Sequence
from typing import Any

from helix_temporal.agents import StreamingModel
from helix_temporal.models.agents import ModelEvent, ModelRequest, ModelResponse, ToolSpec
from helix_temporal.models.messages import Message, ToolCall, decode_message, encode_message
from helix_temporal.testing.builders import user_message

WEATHER = ToolSpec(
    name="weather",
    description="Tells the weather.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


def asking(*messages: Message | str, tools: Sequence[ToolSpec] = (), **fields: Any) -> ModelRequest:
    """A request with these messages; text is a user's."""
    given = tuple(
        user_message(f"u{at}", each) if isinstance(each, str) else each for at, each in enumerate(messages)
    )
    return ModelRequest(
        agent="main", session_id="s", thread_id="s", messages=given, tools=tuple(tools), **fields
    )


async def events_of(model: StreamingModel, request: ModelRequest) -> list[ModelEvent]:
    """All that the model yields."""
    return [event async for event in model.stream(request)]


async def answer_of(model: StreamingModel, request: ModelRequest) -> ModelResponse:
    """The response, which comes last."""
    *_, last = await events_of(model, request)
    assert isinstance(last, ModelResponse)
    return last


def stored(response: ModelResponse, message_id: str = "a1") -> Message:
    """The answer as it comes back from a store, whatever order keys had."""
    message = Message(
        id=message_id,
        role="assistant",
        content=response.content,
        tool_calls=tuple(response.tool_calls),
        usage=response.usage,
        provider=response.provider,
    )
    return decode_message(encode_message(message))


def result(call: ToolCall, content: Any = "fine", **fields: Any) -> Message:
    """What the tool gave for a call."""
    name = hashlib.sha256(call.id.encode()).hexdigest()[:16]
    return Message(
        id=f"r-{name}", role="tool", tool_call_id=call.id, name=call.name, content=content, **fields
    )


async def goes_on(model: StreamingModel, first: ModelResponse, *more: Message) -> None:
    """Ask again, with an answer, the results of its calls, and what follows."""
    results = [result(call) for call in first.tool_calls]
    await answer_of(model, asking("go", stored(first), *results, *more, tools=[WEATHER]))
