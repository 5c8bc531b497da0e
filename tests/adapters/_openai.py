"""OpenAI's wire formats, for a stand-in: answers of both interfaces as events, and clients for it."""

from collections.abc import Iterable
from typing import Any

import openai

from helix_temporal.agents import call_model
from helix_temporal.models.agents import ModelEvent, ModelRequest, ModelResponse, ToolSpec
from helix_temporal.models.messages import Message, decode_message, encode_message
from tests.adapters._standin import Reply, StandIn, events

KEY = "sk-secret"
WEATHER = ToolSpec(
    name="weather",
    description="The weather of a city.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


def client_of(standin: StandIn) -> openai.AsyncOpenAI:
    """The vendor's client, its retries on as it ships, talking to the stand-in."""
    # Reading the system's certificates takes longer than any test here.
    plain = openai.DefaultAsyncHttpxClient(verify=False, trust_env=False)
    return openai.AsyncOpenAI(api_key=KEY, base_url=f"{standin.url}/v1", http_client=plain)


def asking(*messages: Message, **fields: Any) -> ModelRequest:
    """A request with these messages."""
    given: dict[str, Any] = {"agent": "a", "session_id": "s", "thread_id": "t", "step_key": "t/1/0"}
    return ModelRequest(messages=messages, **{**given, **fields})


def user(content: Any, message_id: str = "u1") -> Message:
    """A user's message."""
    return Message(id=message_id, role="user", content=content)


def result(call_id: str, content: Any, message_id: str | None = None, **fields: Any) -> Message:
    """A tool's result."""
    return Message(
        id=message_id or f"r-{call_id}", role="tool", tool_call_id=call_id, content=content, **fields
    )


def answered(response: ModelResponse, message_id: str = "a1") -> Message:
    """The message that a step makes of a response, as a store gives it back."""
    message = Message(
        id=message_id,
        role="assistant",
        content=response.content,
        tool_calls=response.tool_calls,
        finish=response.finish,
        provider=response.provider,
    )
    return decode_message(encode_message(message))


async def said(model: Any, request: ModelRequest) -> tuple[ModelResponse, list[ModelEvent]]:
    """The response, and all events before it."""
    seen: list[ModelEvent] = []

    async def look(event: ModelEvent) -> None:
        seen.append(event)

    response = await call_model(model, request, look)
    return response, seen[:-1]


# -- Chat Completions


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    """One piece of an answer."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def usage_chunk(**usage: Any) -> dict[str, Any]:
    """The last piece, with what was used."""
    return {"id": "c1", "object": "chat.completion.chunk", "choices": [], "usage": usage}


def call_chunks(index: int, call_id: str, name: str, *pieces: str) -> list[dict[str, Any]]:
    """A tool call, its arguments in pieces."""
    first = {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
    return [
        chunk(tool_calls=[first]),
        *(chunk(tool_calls=[{"index": index, "function": {"arguments": piece}}]) for piece in pieces),
    ]


def chat(*chunks: dict[str, Any], cut: bool = False) -> Reply:
    """An answer of Chat Completions."""
    last = [] if cut else ["[DONE]"]
    return events(chunk(role="assistant", content=""), *chunks, *last, cut=cut)


def chat_text(text: str) -> Reply:
    """An answer of text alone."""
    return chat(chunk(content=text), chunk("stop"))


# -- Responses


def response_events(*items: dict[str, Any], status: str = "completed", **fields: Any) -> list[Any]:
    """The events of an answer of the Responses API."""
    whole = {"id": "resp_1", "object": "response", "status": status, "output": list(items), **fields}
    told: list[dict[str, Any]] = [{"type": "response.created", "response": {**whole, "output": []}}]
    for at, item in enumerate(items):
        told += [*_item_events(at, item)]
    kind = "response.incomplete" if status == "incomplete" else "response.completed"
    told.append({"type": kind, "response": whole})
    return [(each["type"], each) for each in told]


def _item_events(at: int, item: dict[str, Any]) -> Iterable[dict[str, Any]]:
    place = {"output_index": at, "item_id": item["id"]}
    empty = {**item, "arguments": ""} if item["type"] == "function_call" else {**item, "content": []}
    yield {"type": "response.output_item.added", **place, "item": empty}
    if item["type"] == "function_call":
        for piece in _halves(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", **place, "delta": piece}
    for index, part in enumerate(item.get("summary", ())):
        yield {"type": "response.reasoning_summary_part.added", **place, "summary_index": index}
        yield {"type": "response.reasoning_summary_text.delta", **place, "delta": part["text"]}
    for part in item.get("content") or ():
        kind = "refusal" if part["type"] == "refusal" else "output_text"
        for piece in _halves(part.get("text") or part.get("refusal") or ""):
            yield {"type": f"response.{kind}.delta", **place, "delta": piece}
    yield {"type": "response.output_item.done", **place, "item": item}


def _halves(text: str) -> list[str]:
    middle = len(text) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]


def responses(*items: dict[str, Any], **fields: Any) -> Reply:
    """An answer of the Responses API."""
    return events(*response_events(*items, **fields))


def message_item(*parts: dict[str, Any], item_id: str = "msg_1", **fields: Any) -> dict[str, Any]:
    """What the model says."""
    item = {"id": item_id, "type": "message", "status": "completed", "role": "assistant"}
    return {**item, "content": list(parts), **fields}


def text_item(text: str) -> dict[str, Any]:
    """What the model says, as text alone."""
    return message_item({"type": "output_text", "text": text, "annotations": [], "logprobs": []})


def call_item(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """A tool call."""
    item = {"id": f"fc_{call_id}", "type": "function_call", "status": "completed"}
    return {**item, "arguments": arguments, "call_id": call_id, "name": name}


def reasoning_item(*summary: str, encrypted: str | None = "gAAAA=", item_id: str = "rs_1") -> dict[str, Any]:
    """What the model thought."""
    parts = [{"type": "summary_text", "text": text} for text in summary]
    return {"id": item_id, "type": "reasoning", "summary": parts, "encrypted_content": encrypted}
