"""Rows of zeitlich's threads (version 1): what they say, in parts of ours.

Calls and results are none of it, nor are blocks that have no form here: providers keep adding some.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from helix_temporal.errors import HelixError
from helix_temporal.models import messages
from helix_temporal.models.base import JsonObject, storable_text
from helix_temporal.models.messages import Message, Role, decode_message
from helix_temporal.models.stored_messages import StoredMessage

Said = str | list[JsonObject] | None
"""Content of a message; None where nothing is said, which is not the same as an empty text."""


def anthropic_said(given: Any) -> Said:
    """A text, or blocks of the Messages API."""
    return _read_content(given, _anthropic_parts)


def google_said(given: Any) -> Said:
    """Parts of the Gemini API."""
    return _read_content(given, _google_parts)


def langchain_said(given: Any) -> Said:
    """A text, blocks in any of LangChain's forms, or what else a tool returned, as JSON."""
    if given is not None and not isinstance(given, str | list):
        given = json_text(given)
    return _read_content(given, _langchain_parts)


def langchain_given(data: Mapping[str, Any]) -> Any:
    """The content of a LangChain message; the newer form may have it in ``content_blocks`` alone."""
    content = data.get("content")
    return data.get("content_blocks") if content in (None, []) and "content_blocks" in data else content


def json_text(value: Any) -> str:
    """The value as JSON, as a model is shown it."""
    return storable_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _read_content(given: Any, read: Any) -> Said:
    if isinstance(given, str):
        return storable_text(given)
    said = [part for each in given or () for part in read(each)]
    if len(said) == 1 and said[0] == {"type": "text", "text": said[0].get("text")}:
        return str(said[0]["text"])
    return said or None


# -- Anthropic


def _anthropic_parts(block: Mapping[str, Any]) -> Iterator[JsonObject]:
    kind = block["type"]
    if kind == "text" and isinstance(block.get("text"), str):
        yield messages.text_part(
            storable_text(block["text"]), cache="cache_control" in block or block.get("cache") is True
        )
    elif kind == "thinking":
        # Ours has its reasoning under another name.
        yield messages.thinking_part(storable_text(str(block.get("thinking", block.get("text", "")))))
    elif kind == "search_result":
        yield messages.text_part(storable_text(_search_result(block)))
    elif kind in {"image", "document", "file"}:
        yield from _anthropic_file(block)


def _anthropic_file(block: Mapping[str, Any]) -> Iterator[JsonObject]:
    source, name = block.get("source"), block.get("title") or block.get("name")
    if not isinstance(source, Mapping):
        # A part of ours, from an export.
        yield {key: value for key, value in block.items() if key != "cache_control"}
    elif source.get("type") == "content":
        # A document of one's own making, in blocks.
        content = source.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        yield from (part for each in blocks for part in _anthropic_parts(each))
    else:
        is_image, data = block["type"] == "image", source.get("data")
        if source.get("type") == "text":
            data = base64.b64encode(storable_text(str(data)).encode()).decode()
        given: dict[str, Any] = {
            "media_type": source.get("media_type") or "",
            "data": data,
            "url": source.get("url"),
        }
        if is_image and not source.get("file_id"):
            yield messages.image_part(**given)
        else:
            yield messages.file_part(**given, file_id=source.get("file_id"), name=name)


def _search_result(block: Mapping[str, Any]) -> str:
    found = [str(each["text"]) for each in block.get("content") or () if isinstance(each.get("text"), str)]
    head = [str(block[name]) for name in ("title", "source") if block.get(name)]
    return "\n".join([*head, *found])


# -- Google


def _google_parts(part: Mapping[str, Any]) -> Iterator[JsonObject]:
    if isinstance(part.get("text"), str):
        text = storable_text(part["text"])
        yield messages.thinking_part(text) if part.get("thought") else messages.text_part(text)
    elif isinstance(part.get("executableCode"), Mapping):
        code = part["executableCode"]
        language = str(code.get("language") or "").lower().replace("language_unspecified", "")
        yield messages.text_part(storable_text(f"```{language}\n{code.get('code') or ''}\n```"))
    elif isinstance(part.get("codeExecutionResult"), Mapping):
        result = part["codeExecutionResult"]
        told = (str(result[name]) for name in ("outcome", "output") if result.get(name))
        yield messages.text_part(storable_text("\n".join(told)))
    else:
        given = part.get("inlineData") or part.get("fileData")
        if isinstance(given, Mapping):
            media_type = given.get("mimeType") or ""
            place: dict[str, Any] = {"data": given.get("data"), "url": given.get("fileUri")}
            if media_type.startswith("image/"):
                yield messages.image_part(media_type=media_type, **place)
            else:
                yield messages.file_part(media_type=media_type, name=given.get("displayName"), **place)


# -- LangChain


def _langchain_parts(block: Any) -> Iterator[JsonObject]:
    if isinstance(block, str):
        yield messages.text_part(storable_text(block))
        return
    kind = block.get("type") if isinstance(block, Mapping) else None
    if kind is None:
        yield messages.text_part(json_text(block))
    elif kind in {"text", "input_text", "output_text", "text-plain"}:
        yield messages.text_part(storable_text(str(block.get("text") or "")), cache="cache_control" in block)
    elif kind in {"thinking", "reasoning"}:
        yield messages.thinking_part(
            storable_text(str(block.get("thinking") or block.get("reasoning") or ""))
        )
    elif kind in {"image_url", "input_image"}:
        address = block.get("image_url")
        yield _by_address(str(address.get("url") if isinstance(address, Mapping) else address))
    elif kind in {"document", "search_result"} or isinstance(block.get("source"), Mapping):
        yield from _anthropic_parts(block)
    elif kind in {"image", "file", "audio", "video", "media"}:
        yield _langchain_file(block)


def _langchain_file(block: Mapping[str, Any]) -> JsonObject:
    """Three generations: ``source_type``, ``mime_type`` with ``base64``, and the same in camel case."""
    if isinstance(block.get("file"), Mapping):
        inner = block["file"]
        found = _by_address(str(inner.get("file_data") or ""), messages.file_part)
        return found | {key: inner[old] for key, old in _OPENAI if inner.get(old)}
    media_type = _first_text(block, "mime_type", "mimeType", "media_type")
    data = _first_text(block, "base64", "data")
    if block.get("source_type") == "text":
        data, media_type = base64.b64encode(str(block.get("text")).encode()).decode(), "text/plain"
    url, file_id = _first_text(block, "url"), _first_text(block, "file_id", "fileId", "id")
    if block["type"] == "image" and (data or url):
        return messages.image_part(media_type=media_type, data=data, url=url)
    name = _first_text(block, "filename", "name")
    return messages.file_part(media_type=media_type, data=data, url=url, file_id=file_id, name=name)


_OPENAI = (("file_id", "file_id"), ("name", "filename"))


def _first_text(block: Mapping[str, Any], *names: str) -> str:
    return next((str(block[name]) for name in names if isinstance(block.get(name), str) and block[name]), "")


def _by_address(address: str, make: Any = messages.image_part) -> JsonObject:
    """From a ``data:`` address, or any other."""
    head, _, data = address.partition(";base64,")
    if data:
        found: JsonObject = make(media_type=head.removeprefix("data:"), data=data)
        return found
    return make(url=address)  # type: ignore[no-any-return]


V1_FORMAT: Final = "zeitlich-v1"
"""Format of rows of version 1, or what it begins with: ``zeitlich-v1/<adapter>``."""
_MARK: Final = f'"format":"{V1_FORMAT}'.encode()
"""Stands in the body of each such row, whose text need not be read to know that a message is none."""
_UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError, HelixError)


def shape_of(row: Mapping[str, Any]) -> str:
    """The adapter whose envelope this row of version 1 is, empty if it is none we know."""
    if isinstance(row.get("message"), dict):
        return "anthropic"
    if isinstance(row.get("content"), dict):
        return "googleGenAI"
    return "langChain" if isinstance(row.get("data"), dict) else ""


EXTRAS: Final = "helix"
"""The member of a row that we wrote, for what its envelope has no place for."""
_EXTRA: Final = frozenset({"content", "name", "usage", "summary_usage", "finish", "provider", "metadata"})


def digest_of(row: Mapping[str, Any]) -> str:
    """Of what a row says beside its extras."""
    said = {name: value for name, value in row.items() if name != EXTRAS}
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def extras_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the message of ours that was written as this row; none if the row was changed since."""
    extras = row.get(EXTRAS)
    if not isinstance(extras, dict) or extras.get("of") != digest_of(row):
        return {}
    given = {name: value for name, value in extras.items() if name in _EXTRA}
    checked = Message.model_validate({"id": "x", "role": "user", **given})
    return {name: getattr(checked, name) for name in given}


class NamedCall(NamedTuple):
    """What a call and its result have in common; not every provider says both."""

    id: str | None
    name: str | None


_Tools = tuple[list[NamedCall], list[NamedCall]]


def read_calls_and_results(message: Message) -> _Tools:
    """The calls and the results in a row of version 1; none in any other message."""
    if not _is_row(message):
        return [], []
    try:
        row = json.loads(message.text)
        return _IN[shape_of(row)](row)
    except _UNREADABLE:
        return [], []


def _is_row(message: Message) -> bool:
    return message.role == "foreign" and (message.format or "").startswith(V1_FORMAT)


def _read_anthropic_calls(row: Mapping[str, Any]) -> _Tools:
    message = row["message"]
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    asked = [*_of_type(blocks, "tool_use"), *(message.get("tool_calls") or [])]
    answered = [NamedCall(each["tool_use_id"], None) for each in _of_type(blocks, "tool_result")]
    if message["role"] == "tool":
        answered.append(NamedCall(message["tool_call_id"], None))
    return [NamedCall(each["id"], each["name"]) for each in asked], answered


def _read_google_calls(row: Mapping[str, Any]) -> _Tools:
    given = row["content"]["parts"]
    asked = [part["functionCall"] for part in given if "functionCall" in part]
    answered = [part["functionResponse"] for part in given if "functionResponse" in part]
    return _ids_and_names(asked), _ids_and_names(answered)


def _read_langchain_calls(row: Mapping[str, Any]) -> _Tools:
    data = row["data"]
    answered = [NamedCall(data["tool_call_id"], None)] if row["type"] == "tool" else []
    return _ids_and_names(data.get("tool_calls") or ()) if row["type"] == "ai" else [], answered


_IN: Final = {
    "anthropic": _read_anthropic_calls,
    "googleGenAI": _read_google_calls,
    "langChain": _read_langchain_calls,
}


def _of_type(blocks: Iterable[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    return [block for block in blocks if block["type"] == kind]


def _ids_and_names(found: Iterable[Mapping[str, Any]]) -> list[NamedCall]:
    return [NamedCall(each.get("id"), each["name"]) for each in found]


# ---- who speaks -------------------------------------------------------------------------------------


def find_said(stored: StoredMessage) -> Message | None:
    """A row of version 1 as the message of ours that says the same, but for calls and results.

    None where nobody says anything, as in a result, and for whatever is no row that can be read.
    """
    if _MARK not in stored.body:
        return None
    message = decode_message(stored)
    if not _is_row(message):
        return None
    try:
        row = json.loads(message.text)
        role, said = _SPOKEN[shape_of(row)](row)
        return None if said is None else Message(id=stored.id, role=_ROLES[role], content=said)
    except _UNREADABLE:
        return None


def _anthropic_spoken(row: Mapping[str, Any]) -> tuple[str, Said]:
    message = row["message"]
    role = "system" if row.get("isSystem") else message["role"]
    return role, anthropic_said(message["content"])


def _google_spoken(row: Mapping[str, Any]) -> tuple[str, Said]:
    return row["content"]["role"], google_said(row["content"]["parts"])


def _langchain_spoken(row: Mapping[str, Any]) -> tuple[str, Said]:
    return row["type"], langchain_said(langchain_given(row["data"])) or ""


_SPOKEN: Final = {
    "anthropic": _anthropic_spoken,
    "googleGenAI": _google_spoken,
    "langChain": _langchain_spoken,
}
_ROLES: Final[dict[str, Role]] = {
    "system": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "model": "assistant",
    "ai": "assistant",
}
