"""Content of foreign rows as parts of ours, by the provider whose form it has.

Calls and results are none of it, nor are blocks that have no form here: providers keep adding some.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

from helix_temporal.models import messages
from helix_temporal.models.base import JsonObject, storable_text

Said = str | list[JsonObject] | None
"""Content of a message; None where nothing is said, which is not the same as an empty text."""


def anthropic_said(given: Any) -> Said:
    """A text, or blocks of the Messages API."""
    return read_content(given, _anthropic_parts)


def google_said(given: Any) -> Said:
    """Parts of the Gemini API."""
    return read_content(given, _google_parts)


def langchain_said(given: Any) -> Said:
    """A text, blocks in any of LangChain's forms, or what else a tool returned, as JSON."""
    if given is not None and not isinstance(given, str | list):
        given = json_text(given)
    return read_content(given, _langchain_parts)


def langchain_given(data: Mapping[str, Any]) -> Any:
    """The content of a LangChain message; the newer form may have it in ``content_blocks`` alone."""
    content = data.get("content")
    return data.get("content_blocks") if content in (None, []) and "content_blocks" in data else content


def json_text(value: Any) -> str:
    """The value as JSON, as a model is shown it."""
    return storable_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def read_content(given: Any, read: Any) -> Said:
    """A text, or what ``read`` gives of each block; None where that is nothing."""
    if isinstance(given, str):
        return storable_text(given)
    said = [part for each in given or () for part in read(each)]
    if len(said) == 1 and said[0] == {"type": "text", "text": said[0].get("text")}:
        return str(said[0]["text"])
    return said or None


def media_part(media_type: str, *, name: str | None = None, **place: Any) -> JsonObject:
    """An image, or a file of another type; ``place`` is its ``data`` (base64), ``url`` or ``file_id``."""
    if media_type.startswith("image/") and not place.get("file_id"):
        place.pop("file_id", None)
        return messages.image_part(media_type=media_type, **place)
    return messages.file_part(media_type=media_type, name=name, **place)


def part_at_address(address: str, make: Any = messages.image_part) -> JsonObject:
    """An image, or what ``make`` makes, at a ``data:`` address or any other."""
    head, _, data = address.partition(";base64,")
    if data:
        found: JsonObject = make(media_type=head.removeprefix("data:"), data=data)
        return found
    return make(url=address)  # type: ignore[no-any-return]


def standard_base64(data: str) -> str:
    """Base64 in the alphabet of our parts; pydantic writes bytes in the one for addresses."""
    return data.translate(_STANDARD)


_STANDARD = str.maketrans("-_", "+/")


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
            media_type, name = given.get("mimeType") or "", given.get("displayName")
            yield media_part(media_type, name=name, data=given.get("data"), url=given.get("fileUri"))


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
        yield part_at_address(str(address.get("url") if isinstance(address, Mapping) else address))
    elif kind in {"document", "search_result"} or isinstance(block.get("source"), Mapping):
        yield from _anthropic_parts(block)
    elif kind in {"image", "file", "audio", "video", "media"}:
        yield _langchain_file(block)


def _langchain_file(block: Mapping[str, Any]) -> JsonObject:
    """Three generations: ``source_type``, ``mime_type`` with ``base64``, and the same in camel case."""
    if isinstance(block.get("file"), Mapping):
        inner = block["file"]
        found = part_at_address(str(inner.get("file_data") or ""), messages.file_part)
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
