"""What rows of version 1 say, in parts of ours.

Calls and results are none of it, nor are blocks that have no form here: providers keep adding some.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from helix_temporal.models import parts
from helix_temporal.models._json import JsonObject, clean

Said = str | list[JsonObject] | None
"""Content of a message; None where nothing is said, which is not the same as an empty text."""


def anthropic_said(given: Any) -> Said:
    """A text, or blocks of the Messages API."""
    return clean(given) if isinstance(given, str) else _content(_anthropic_part(each) for each in given)


def google_said(given: Iterable[Mapping[str, Any]]) -> Said:
    """Parts of the Gemini API."""
    return _content(_google_part(each) for each in given)


def langchain_said(given: Any) -> Said:
    """A text, or blocks in any of LangChain's forms."""
    return clean(given) if isinstance(given, str) else _content(_langchain_part(each) for each in given or ())


def _content(found: Iterable[JsonObject | None]) -> Said:
    said = [part for part in found if part is not None]
    if len(said) == 1 and said[0]["type"] == "text":
        return str(said[0]["text"])
    return said or None


def _anthropic_part(block: Mapping[str, Any]) -> JsonObject | None:
    kind = block["type"]
    if kind == "text":
        return parts.text(clean(block["text"]), cache="cache_control" in block)
    if kind == "thinking":
        return parts.thinking(clean(block["thinking"]))
    if kind not in {"image", "document"}:
        return None
    source = block["source"]
    make = parts.image if kind == "image" else parts.file
    return make(media_type=source.get("media_type", ""), data=source.get("data"), url=source.get("url"))


def _google_part(part: Mapping[str, Any]) -> JsonObject | None:
    if isinstance(part.get("text"), str):
        text = clean(part["text"])
        return parts.thinking(text) if part.get("thought") else parts.text(text)
    given = part.get("inlineData") or part.get("fileData")
    if given is None:
        return None
    media_type = given.get("mimeType", "")
    make = parts.image if media_type.startswith("image/") else parts.file
    return make(media_type=media_type, data=given.get("data"), url=given.get("fileUri"))


def _langchain_part(block: Any) -> JsonObject | None:
    if isinstance(block, str):
        return parts.text(clean(block))
    if block["type"] == "text":
        return parts.text(clean(block["text"]))
    if block["type"] == "image_url":
        address = block["image_url"]
        address = address["url"] if isinstance(address, dict) else address
        head, _, data = address.partition(";base64,")
        if data:
            return parts.image(media_type=head.removeprefix("data:"), data=data)
        return parts.image(url=address)
    if block["type"] in {"image", "file"}:
        make = parts.image if block["type"] == "image" else parts.file
        media_type = block.get("mime_type") or block.get("media_type") or ""
        data = block.get("base64") or block.get("data")
        return make(media_type=media_type, data=data, url=block.get("url"))
    return None
