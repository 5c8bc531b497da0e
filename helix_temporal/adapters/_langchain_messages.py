"""Pure: our messages as LangChain's, and its answers as ours."""

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages import ToolCall as TheirCall

from helix_temporal.adapters._calls import sent_name
from helix_temporal.adapters._common import (
    Outgoing,
    as_json,
    clean,
    finish_of,
    outgoing,
    remembering,
    sent_arguments,
)
from helix_temporal.models import parts
from helix_temporal.models._json import JsonObject
from helix_temporal.models.agents import ModelRequest, ModelResponse
from helix_temporal.models.messages import Finish, Message, ToolCall, Usage

_ENDS: Final = {
    Finish.LENGTH: {
        "length",
        "max_tokens",
        "max_output_tokens",
        "model_length",
        "model_context_window_exceeded",
    },
    Finish.CONTENT_FILTER: {
        "content_filter",
        "content_filtered",
        "guardrail_intervened",
        "safety",
        "recitation",
        "blocklist",
        "prohibited_content",
        "spii",
    },
    Finish.REFUSAL: {"refusal"},
}
_NAMES: Final = ("stop_reason", "finish_reason", "done_reason", "stopReason", "status")
"""Where the packages for LangChain say why a model stopped."""
_TEXTS: Final = ("text/", "application/json", "application/xml", "application/yaml")


# -- to LangChain


def messages_of(request: ModelRequest, adapter: str, *, marks: bool) -> list[BaseMessage]:
    """The request's messages; this model's own answers exactly as they came.

    ``marks``: the provider takes marks of the cache at parts.
    """
    notes = [each.text for each in request.messages if each.role == "system"]
    system = "\n\n".join(text for text in (request.instructions, *notes) if text.strip())
    first: list[BaseMessage] = [SystemMessage(system)] if system else []
    each = outgoing(request.messages, adapter, call_ids)
    return first + [found for one in each if (found := _message(one, marks)) is not None]


def call_ids(raw: Any) -> list[str]:
    """The ids of the calls in an answer that was kept."""
    return [call["id"] for call in raw.get("tool_calls", ())]


def _message(sent: Outgoing, marks: bool) -> BaseMessage | None:
    message = sent.message
    if message.role == "assistant":
        return AIMessage(**sent.raw) if sent.raw is not None else _answer(message)
    if message.role == "user":
        return HumanMessage(**(sent.raw or {"content": _content(message, marks)}))
    if message.role == "tool":
        return ToolMessage(
            **(sent.raw or {"content": _content(message, marks)}),
            tool_call_id=message.tool_call_id or "",
            name=message.name,
            status="error" if message.is_error else "success",
        )
    return None


def _answer(message: Message) -> AIMessage:
    return AIMessage(
        message.text, tool_calls=[_their_call(call, sent_name(call.name)) for call in message.tool_calls]
    )


def _their_call(call: ToolCall, name: str | None = None) -> TheirCall:
    return TheirCall(name=name or call.name, args=sent_arguments(call), id=call.id, type="tool_call")


def _content(message: Message, marks: bool) -> Any:
    if isinstance(message.content, str):
        return message.content
    blocks: list[JsonObject] = []
    for part in message.content:
        block = _block(part)
        if block is not None:
            if marks and part.get("cache") is True:
                block["cache_control"] = {"type": "ephemeral"}
            blocks.append(block)
    return blocks


def _block(part: Mapping[str, Any]) -> JsonObject | None:
    kind = part.get("type")
    if kind == "text":
        return {"type": "text", "text": part.get("text", "")}
    if kind not in {"image", "file"}:
        return None
    media_type = str(part.get("media_type", ""))
    block: JsonObject = {"type": "image" if media_type.startswith("image/") else kind}
    if part.get("file_id"):
        return block | {"file_id": part["file_id"]}
    if part.get("url"):
        return block | {"url": part["url"]}
    text = _decoded(part.get("data")) if media_type.startswith(_TEXTS) else None
    name = str(part.get("name") or "file")
    if text is not None:
        # Few providers take texts as files.
        return {"type": "text", "text": f"{name}:\n{text}"}
    if not part.get("data"):
        return None
    block |= {"base64": part["data"], "mime_type": media_type}
    return block if block["type"] == "image" else block | {"filename": name}


def _decoded(data: object) -> str | None:
    try:
        return base64.b64decode(str(data), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


# -- from LangChain


def why_stopped(message: AIMessage) -> str | None:
    """Why the model stopped, in its provider's words; None if it has not said."""
    said = message.response_metadata
    details = said.get("incomplete_details")
    if isinstance(details, dict) and details.get("reason"):
        return str(details["reason"])
    return next((str(said[name]) for name in _NAMES if said.get(name)), None)


def finish_by(message: AIMessage) -> Finish:
    """The same in our words."""
    if message.additional_kwargs.get("refusal"):
        return Finish.REFUSAL
    word = (why_stopped(message) or "").lower()
    return next((finish for finish, words in _ENDS.items() if word in words), Finish.STOP)


def response_of(message: AIMessage, calls: Sequence[ToolCall], adapter: str) -> ModelResponse:
    """The answer in our form; ``calls`` are its calls as they are to be stored."""
    response = ModelResponse(
        content=_parts(message),
        tool_calls=tuple(calls),
        usage=_usage(message),
        stop_reason=why_stopped(message),
        finish=finish_of(finish_by(message), calls),
    )
    return remembering(adapter, response, _raw(message, calls), lambda _: None)


def _raw(message: AIMessage, calls: Sequence[ToolCall]) -> Any:
    """All of the message that another request may need; what could not be read goes back as an object."""
    raw = message.model_dump(mode="json", exclude_defaults=True, exclude={"usage_metadata", "type"})
    raw.pop("invalid_tool_calls", None)
    if message.invalid_tool_calls:
        raw.get("additional_kwargs", {}).pop("tool_calls", None)
    if calls:
        raw["tool_calls"] = [dict(_their_call(call)) for call in calls]
    # As JSON once, so that nothing is found out only when a store reads it.
    as_json(raw)
    return raw


def _parts(message: AIMessage) -> str | list[JsonObject]:
    found = list(_standard(message))
    if all(part["type"] == "text" for part in found):
        return "".join(str(part["text"]) for part in found) or _refusal(message)
    return found


def _refusal(message: AIMessage) -> str:
    return clean(str(message.additional_kwargs.get("refusal") or ""))


def _standard(message: AIMessage) -> Iterator[JsonObject]:
    for block in message.content_blocks:
        if block["type"] == "text" and block.get("text"):
            yield parts.text(clean(block["text"]))
        elif block["type"] == "reasoning" and (thought := block.get("reasoning")):
            yield parts.thinking(clean(thought))
        elif block["type"] == "image":
            yield parts.image(
                media_type=block.get("mime_type") or "", data=block.get("base64"), url=block.get("url")
            )


def _usage(message: AIMessage) -> Usage | None:
    used: Mapping[str, Any] | None = message.usage_metadata
    if used is None:
        return None
    into: dict[str, Any] = dict(used.get("input_token_details") or {})
    written = sum(
        int(count) for name, count in into.items() if name.startswith(("cache_creation", "ephemeral_"))
    )
    return Usage(
        input_tokens=used.get("input_tokens", 0),
        output_tokens=used.get("output_tokens", 0),
        cached_read_tokens=into.get("cache_read") or 0,
        cached_write_tokens=written,
        reasoning_tokens=(used.get("output_token_details") or {}).get("reasoning") or 0,
    )
