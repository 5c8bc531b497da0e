"""Pure: our messages in the form of Anthropic's Messages API."""

import base64
import binascii
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from helix_temporal.adapters._calls import sent_name
from helix_temporal.adapters._common import Outgoing, outgoing, sent_arguments
from helix_temporal.models.agents import ModelRequest, ToolSpec
from helix_temporal.models.messages import Message

NAME: Final = "anthropic"

MAX_MARKS: Final = 4
"""Places up to which one request may ask for the prompt to be cached."""

Block = dict[str, Any]

_BEGAN: Final = "(The beginning of this conversation is not shown.)"
_IMAGES: Final = {"image/jpeg", "image/png", "image/gif", "image/webp"}
_FAILED: Final = "The tool failed."
_TEXTS: Final = ("text/", "application/json", "application/xml", "application/yaml")


def request_fields(request: ModelRequest, cache: dict[str, Any] | None) -> dict[str, Any]:
    """``system``, ``messages`` and ``tools`` of a request.

    Args:
        request: What is asked.
        cache: How marks that the adapter sets by itself look; None sets none.
    """
    messages = messages_of(request.messages)
    system = [_text(text) for text in _system(request) if text.strip()]
    tools = [_tool(spec) for spec in request.tools]
    if cache is not None:
        _mark_usual(system, tools, messages, cache)
    _keep_newest_marks([*tools, *system], messages)
    fields: dict[str, Any] = {"messages": messages}
    if system:
        fields["system"] = system
    if tools:
        fields["tools"] = tools
    return fields


def messages_of(messages: Sequence[Message]) -> list[Block]:
    """The messages in turns of user and assistant; Anthropic's own answers exactly as they came."""
    given: list[Block] = []
    for each in outgoing(messages, NAME, call_ids):
        if each.message.role == "assistant":
            blocks = answer_blocks(each.message) if each.raw is None else each.raw
            role = "assistant"
        else:
            blocks = list(_user_blocks(each.message)) if each.raw is None else _own_user_blocks(each)
            role = "user"
        if not blocks:
            continue
        if given and given[-1]["role"] == role:
            given[-1]["content"] += blocks
        else:
            given.append({"role": role, "content": blocks})
    if given and given[0]["role"] == "assistant":
        given.insert(0, {"role": "user", "content": [_text(_BEGAN)]})
    return given


def call_ids(raw: Any) -> list[str]:
    """The ids of the calls in an answer's blocks."""
    return [block["id"] for block in raw if block.get("type") == "tool_use"]


def answer_blocks(message: Message) -> list[Block]:
    """An answer from its canonical form: text, then calls; reasoning is not shown to another model."""
    # Without marks of the cache: those are counted in turns of the user alone.
    blocks = [_text(block["text"]) for block in _content(message) if block["type"] == "text"]
    return blocks + [
        {"type": "tool_use", "id": call.id, "name": sent_name(call.name), "input": sent_arguments(call)}
        for call in message.tool_calls
    ]


def _own_user_blocks(each: Outgoing) -> list[Block]:
    """Blocks of an archive of Anthropic's own, as they came; but empty text is refused."""
    blocks = [block for block in each.raw if block.get("type") != "text" or block["text"].strip()]
    if each.message.role == "tool":
        blocks = [block | {"tool_use_id": each.message.tool_call_id} for block in blocks]
    return blocks


def _user_blocks(message: Message) -> Iterator[Block]:
    if message.role == "user":
        yield from _content(message)
    elif message.role == "tool":
        result: Block = {"type": "tool_result", "tool_use_id": message.tool_call_id}
        content = list(_content(message))
        marks = [block.pop("cache_control") for block in content if "cache_control" in block]
        if message.is_error:
            # A failure that says nothing is refused.
            content = content or [_text(_FAILED)]
            result["is_error"] = True
        if content:
            result["content"] = content
        if marks:
            # Not within the result, where it does not count.
            result["cache_control"] = marks[-1]
        yield result


def _content(message: Message) -> Iterator[Block]:
    parts = message.content
    if isinstance(parts, str):
        parts = [{"type": "text", "text": parts}]
    for part in parts:
        block = _block(part)
        # Empty text is refused.
        if block is None or (block["type"] == "text" and not block["text"].strip()):
            continue
        if part.get("cache") is True:
            block["cache_control"] = {"type": "ephemeral"}
        yield block


def _block(part: Block) -> Block | None:
    kind = part.get("type")
    if kind == "text":
        return _text(str(part.get("text", "")))
    if kind not in {"image", "file"}:
        return None
    source = _source(part)
    if source is None:
        return None
    media_type = str(part.get("media_type", ""))
    if kind == "image" or media_type.startswith("image/"):
        readable = source["type"] != "base64" or media_type in _IMAGES
        return {"type": "image", "source": source} if readable else _unreadable(part)
    return _document(part, source, media_type)


def _document(part: Block, source: Block, media_type: str) -> Block:
    if source["type"] == "base64" and media_type.startswith(_TEXTS):
        text = _decoded(source["data"])
        if text is None or not text.strip():
            return _unreadable(part)
        source = {"type": "text", "media_type": "text/plain", "data": text}
    elif source["type"] != "file" and media_type not in {"application/pdf", ""}:
        return _unreadable(part)
    block: Block = {"type": "document", "source": source}
    return block | {"title": part["name"]} if part.get("name") else block


def _unreadable(part: Block) -> Block:
    said = [str(part[name]) for name in ("name", "media_type", "url") if part.get(name)]
    return _text(f"({', '.join(said) or 'a file'}: can't be shown to this model.)")


def _source(part: Block) -> Block | None:
    if part.get("file_id"):
        return {"type": "file", "file_id": part["file_id"]}
    if part.get("url"):
        return {"type": "url", "url": part["url"]}
    if part.get("data"):
        return {"type": "base64", "media_type": part.get("media_type", ""), "data": part["data"]}
    return None


def _decoded(data: object) -> str | None:
    try:
        return base64.b64decode(str(data), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _system(request: ModelRequest) -> Iterator[str]:
    yield request.instructions
    for message in request.messages:
        if message.role == "system":
            yield message.text


def _tool(spec: ToolSpec) -> Block:
    tool: Block = {"name": spec.name}
    if spec.description:
        tool["description"] = spec.description
    return tool | {"input_schema": {"type": "object"} | spec.parameters}


# -- caching


def _mark_usual(
    system: Sequence[Block], tools: Sequence[Block], messages: Sequence[Block], cache: Block
) -> None:
    """Mark what comes before the conversation, its newest end, and the end that the last call had."""
    before = system or tools
    users = [each["content"][-1] for each in messages if each["role"] == "user"]
    for block in [*before[-1:], *users[-2:]]:
        block.setdefault("cache_control", dict(cache))


def _keep_newest_marks(before: Iterable[Block], messages: Iterable[Block]) -> None:
    """Take away the oldest marks of the conversation where there are too many; those before it stay."""
    first = sum("cache_control" in block for block in before)
    marked = [
        block
        for each in messages
        if each["role"] == "user"
        for block in each["content"]
        if "cache_control" in block
    ]
    spare = max(0, MAX_MARKS - first)
    for block in marked[: max(0, len(marked) - spare)]:
        del block["cache_control"]
