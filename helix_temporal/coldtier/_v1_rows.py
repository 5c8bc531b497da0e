"""Pure: messages of ours as rows that zeitlich's adapters read, each in the envelope of one adapter.

What an envelope has no place for stands in a member of its own, which zeitlich ignores: our fields beside
the content, and the content where another would be read back.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from helix_temporal.models._json import JsonObject
from helix_temporal.models.messages import Message
from helix_temporal.models.rows import EXTRAS, digest_of

Row = dict[str, Any]

_FIELDS: Final = ("name", "usage", "summary_usage", "finish", "provider", "metadata")
_SIGNATURE: Final = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
"""Stands for the signature of a call that another provider's model made: Gemini refuses calls without."""


class RowWriter:
    """Writes a thread's messages in order: results of Gemini's repeat the names of their calls.

    Args:
        adapter: ``anthropic``, ``googleGenAI`` or ``langChain``; any other gives the generic envelope.
    """

    def __init__(self, adapter: str) -> None:
        self._adapter = adapter
        self._names: dict[str, str] = {}

    def write(self, message: Message) -> Row:
        """The row of one message of ours."""
        self._names |= {call.id: call.name for call in message.tool_calls}
        make = _ENVELOPES.get(self._adapter)
        if make is None:
            return _generic(message)
        row = make(message, self._names)
        extras = _extras(message)
        return row | {EXTRAS: {"of": digest_of(row), **extras}} if extras else row


def _extras(message: Message) -> JsonObject:
    fields = message.model_dump(mode="json", exclude_defaults=True)
    extras: JsonObject = {name: fields[name] for name in _FIELDS if name in fields}
    if not _is_read_back(message):
        extras["content"] = fields.get("content", "")
    return extras


def _is_read_back(message: Message) -> bool:
    """Whether the content is read back as it was, from any envelope."""
    if isinstance(message.content, str):
        return not message.content or bool(message.content.strip())
    return message.role != "tool" and len(message.content) > 1 and all(map(_is_plain, message.content))


def _is_plain(part: Mapping[str, Any]) -> bool:
    kind = part.get("type")
    if kind == "text":
        return part.keys() == {"type", "text"} and bool(str(part["text"]).strip())
    return kind == "image" and part.keys() == {"type", "media_type", "data"}


def _generic(message: Message) -> Row:
    fields = message.model_dump(mode="json", exclude={"id"}, exclude_defaults=True)
    body = {"role": message.role, "content": fields.pop("content", ""), **fields}
    return {"id": message.id, "message": body}


def _parts(message: Message) -> Iterator[Mapping[str, Any]]:
    if isinstance(message.content, str):
        if message.content:
            yield {"type": "text", "text": message.content}
    else:
        yield from message.content


def _source(part: Mapping[str, Any]) -> Row | None:
    if part.get("data"):
        return {"type": "base64", "media_type": part.get("media_type") or "", "data": part["data"]}
    if part.get("url"):
        return {"type": "url", "url": part["url"]}
    return {"type": "file", "file_id": part["file_id"]} if part.get("file_id") else None


# -- Anthropic


def _anthropic(message: Message, names: Mapping[str, str]) -> Row:  # noqa: ARG001 (of one shape with the others)
    if message.role == "system":
        return {"id": message.id, "message": {"role": "user", "content": message.text}, "isSystem": True}
    blocks = [block for part in _parts(message) if (block := _anthropic_block(part)) is not None]
    role = "assistant" if message.role == "assistant" else "user"
    if message.role == "tool":
        result: Row = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": blocks}
        if isinstance(message.content, str):
            result["content"] = message.content
        blocks = [result | {"is_error": True} if message.is_error else result]
    blocks += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
        for call in message.tool_calls
    ]
    return {"id": message.id, "message": {"role": role, "content": blocks}}


def _anthropic_block(part: Mapping[str, Any]) -> Row | None:
    kind, source = part.get("type"), _source(part)
    if kind == "text" and str(part.get("text", "")).strip():
        block: Row = {"type": "text", "text": part["text"]}
        return block | {"cache_control": {"type": "ephemeral"}} if part.get("cache") is True else block
    if source is None or kind not in {"image", "file"}:
        return None
    return {"type": "image" if kind == "image" else "document", "source": source}


# -- Google


def _google(message: Message, names: Mapping[str, str]) -> Row:
    role = {"system": "system", "assistant": "model"}.get(message.role, "user")
    given = [made for part in _parts(message) if (made := _google_part(part)) is not None]
    if message.role == "tool":
        name = names.get(message.tool_call_id or "") or message.name or "unnamed"
        told = {"error" if message.is_error else "result": message.text}
        result = {"id": message.tool_call_id, "name": name, "response": told}
        given = [{"functionResponse": result}, *(part for part in given if "text" not in part)]
    for at, call in enumerate(message.tool_calls):
        part: Row = {"functionCall": {"id": call.id, "name": call.name, "args": call.arguments}}
        given.append(part if at else part | {"thoughtSignature": _SIGNATURE})
    return {"id": message.id, "content": {"role": role, "parts": given or [{"text": ""}]}}


def _google_part(part: Mapping[str, Any]) -> Row | None:
    kind, media_type = part.get("type"), part.get("media_type")
    if kind == "text":
        return {"text": part["text"]} if part.get("text") else None
    if kind not in {"image", "file"}:
        return None
    if part.get("data"):
        return {"inlineData": {"mimeType": media_type or "application/octet-stream", "data": part["data"]}}
    place = part.get("url") or part.get("file_id")
    file = {"fileUri": place}
    return {"fileData": file | {"mimeType": media_type} if media_type else file} if place else None


# -- LangChain

_TYPES: Final = {"system": "system", "user": "human", "assistant": "ai", "tool": "tool"}


def _langchain(message: Message, names: Mapping[str, str]) -> Row:
    content: Any = message.content
    if not isinstance(content, str):
        content = [made for part in content if (made := _langchain_part(part)) is not None]
    data: Row = {"id": message.id, "content": content, "additional_kwargs": {}, "response_metadata": {}}
    if message.role == "assistant":
        calls = [
            {"name": call.name, "args": call.arguments, "id": call.id, "type": "tool_call"}
            for call in message.tool_calls
        ]
        data |= {"tool_calls": calls, "invalid_tool_calls": []}
    elif message.role == "tool":
        name = message.name or names.get(message.tool_call_id or "")
        data |= {"tool_call_id": message.tool_call_id, "status": "error" if message.is_error else "success"}
        data |= {"name": name} if name else {}
    return {"type": _TYPES[message.role], "data": data}


def _langchain_part(part: Mapping[str, Any]) -> Row | None:
    kind, media_type = part.get("type"), part.get("media_type") or ""
    if kind == "text":
        return {"type": "text", "text": part.get("text", "")}
    if kind not in {"image", "file"}:
        return None
    data, url = part.get("data"), part.get("url")
    if kind == "image" and (data or url):
        address = f"data:{media_type};base64,{data}" if data else url
        return {"type": "image_url", "image_url": {"url": address}}
    if data:
        return {"type": "file", "source_type": "base64", "mime_type": media_type, "data": data}
    if url:
        return {"type": "file", "source_type": "url", "url": url}
    return {"type": "file", "source_type": "id", "id": part["file_id"]} if part.get("file_id") else None


_ENVELOPES: Final[dict[str, Callable[[Message, Mapping[str, str]], Row]]] = {
    "anthropic": _anthropic,
    "googleGenAI": _google,
    "langChain": _langchain,
}
