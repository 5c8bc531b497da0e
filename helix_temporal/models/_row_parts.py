"""What rows of version 1 say, in parts of ours.

Calls and results are none of it, nor are blocks that have no form here: providers keep adding some.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

from helix_temporal.models import parts
from helix_temporal.models._json import JsonObject, clean

Said = str | list[JsonObject] | None
"""Content of a message; None where nothing is said, which is not the same as an empty text."""


def anthropic_said(given: Any) -> Said:
    """A text, or blocks of the Messages API."""
    return _said(given, _anthropic_parts)


def google_said(given: Any) -> Said:
    """Parts of the Gemini API."""
    return _said(given, _google_parts)


def langchain_said(given: Any) -> Said:
    """A text, blocks in any of LangChain's forms, or what else a tool returned, as JSON."""
    if given is not None and not isinstance(given, str | list):
        given = json_text(given)
    return _said(given, _langchain_parts)


def langchain_given(data: Mapping[str, Any]) -> Any:
    """The content of a LangChain message; the newer form may have it in ``content_blocks`` alone."""
    content = data.get("content")
    return data.get("content_blocks") if content in (None, []) and "content_blocks" in data else content


def json_text(value: Any) -> str:
    """The value as JSON, as a model is shown it."""
    return clean(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _said(given: Any, read: Any) -> Said:
    if isinstance(given, str):
        return clean(given)
    said = [part for each in given or () for part in read(each)]
    if len(said) == 1 and said[0] == {"type": "text", "text": said[0].get("text")}:
        return str(said[0]["text"])
    return said or None


# -- Anthropic


def _anthropic_parts(block: Mapping[str, Any]) -> Iterator[JsonObject]:
    kind = block["type"]
    if kind == "text" and isinstance(block.get("text"), str):
        yield parts.text(clean(block["text"]), cache="cache_control" in block or block.get("cache") is True)
    elif kind == "thinking":
        # Ours has its reasoning under another name.
        yield parts.thinking(clean(str(block.get("thinking", block.get("text", "")))))
    elif kind == "search_result":
        yield parts.text(clean(_search_result(block)))
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
            data = base64.b64encode(clean(str(data)).encode()).decode()
        given: dict[str, Any] = {
            "media_type": source.get("media_type") or "",
            "data": data,
            "url": source.get("url"),
        }
        if is_image and not source.get("file_id"):
            yield parts.image(**given)
        else:
            yield parts.file(**given, file_id=source.get("file_id"), name=name)


def _search_result(block: Mapping[str, Any]) -> str:
    found = [str(each["text"]) for each in block.get("content") or () if isinstance(each.get("text"), str)]
    head = [str(block[name]) for name in ("title", "source") if block.get(name)]
    return "\n".join([*head, *found])


# -- Google


def _google_parts(part: Mapping[str, Any]) -> Iterator[JsonObject]:
    if isinstance(part.get("text"), str):
        text = clean(part["text"])
        yield parts.thinking(text) if part.get("thought") else parts.text(text)
    elif isinstance(part.get("executableCode"), Mapping):
        code = part["executableCode"]
        language = str(code.get("language") or "").lower().replace("language_unspecified", "")
        yield parts.text(clean(f"```{language}\n{code.get('code') or ''}\n```"))
    elif isinstance(part.get("codeExecutionResult"), Mapping):
        result = part["codeExecutionResult"]
        told = (str(result[name]) for name in ("outcome", "output") if result.get(name))
        yield parts.text(clean("\n".join(told)))
    else:
        given = part.get("inlineData") or part.get("fileData")
        if isinstance(given, Mapping):
            media_type = given.get("mimeType") or ""
            place: dict[str, Any] = {"data": given.get("data"), "url": given.get("fileUri")}
            if media_type.startswith("image/"):
                yield parts.image(media_type=media_type, **place)
            else:
                yield parts.file(media_type=media_type, name=given.get("displayName"), **place)


# -- LangChain


def _langchain_parts(block: Any) -> Iterator[JsonObject]:
    if isinstance(block, str):
        yield parts.text(clean(block))
        return
    kind = block.get("type") if isinstance(block, Mapping) else None
    if kind is None:
        yield parts.text(json_text(block))
    elif kind in {"text", "input_text", "output_text", "text-plain"}:
        yield parts.text(clean(str(block.get("text") or "")), cache="cache_control" in block)
    elif kind in {"thinking", "reasoning"}:
        yield parts.thinking(clean(str(block.get("thinking") or block.get("reasoning") or "")))
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
        found = _by_address(str(inner.get("file_data") or ""), parts.file)
        return found | {key: inner[old] for key, old in _OPENAI if inner.get(old)}
    media_type = _first(block, "mime_type", "mimeType", "media_type")
    data = _first(block, "base64", "data")
    if block.get("source_type") == "text":
        data, media_type = base64.b64encode(str(block.get("text")).encode()).decode(), "text/plain"
    url, file_id = _first(block, "url"), _first(block, "file_id", "fileId", "id")
    if block["type"] == "image" and (data or url):
        return parts.image(media_type=media_type, data=data, url=url)
    name = _first(block, "filename", "name")
    return parts.file(media_type=media_type, data=data, url=url, file_id=file_id, name=name)


_OPENAI = (("file_id", "file_id"), ("name", "filename"))


def _first(block: Mapping[str, Any], *names: str) -> str:
    return next((str(block[name]) for name in names if isinstance(block.get(name), str) and block[name]), "")


def _by_address(address: str, make: Any = parts.image) -> JsonObject:
    """From a ``data:`` address, or any other."""
    head, _, data = address.partition(";base64,")
    if data:
        found: JsonObject = make(media_type=head.removeprefix("data:"), data=data)
        return found
    return make(url=address)  # type: ignore[no-any-return]
