"""Messages of pydantic-ai: a request or a response, of parts."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from helix_temporal.models import messages
from helix_temporal.models.base import JsonObject, storable_text
from helix_temporal.models.foreign_rows.content import Said, media_part, read_content, standard_base64
from helix_temporal.models.foreign_rows.row import ForeignRow, NamedCall


def read_pydantic_message(message: Mapping[str, Any]) -> ForeignRow:
    """A request, in which users speak and tools answer, or a response.

    Calls of a provider's own tools (``builtin-tool-call``) have their results within the response.
    """
    parts = message["parts"]
    if message["kind"] == "response":
        calls = [_name_call(part) for part in _of_kind(parts, "tool-call")]
        said = partial(read_content, parts, _read_answer_part)
        return ForeignRow(calls=calls, role="assistant", read_said=said)
    retries = [part for part in _of_kind(parts, "retry-prompt") if part.get("tool_name")]
    results = [_name_call(part) for part in [*_of_kind(parts, "tool-return"), *retries]]
    # A prompt in the same request stands before what the user says, and is not the user's.
    asked = _of_kind(parts, "user-prompt", "speech")
    prompts = asked or _of_kind(parts, "system-prompt")
    return ForeignRow((), results, "user" if asked else "system", partial(_read_prompts, prompts))


def _of_kind(parts: Iterable[Mapping[str, Any]], *kinds: str) -> list[Mapping[str, Any]]:
    return [part for part in parts if part["part_kind"] in kinds]


def _name_call(part: Mapping[str, Any]) -> NamedCall:
    return NamedCall(part["tool_call_id"], part["tool_name"])


def _read_prompts(parts: Iterable[Mapping[str, Any]]) -> Said:
    contents = [part["transcript"] if part["part_kind"] == "speech" else part["content"] for part in parts]
    items = [item for each in contents for item in ([each] if isinstance(each, str) else each or ())]
    return read_content(items, _read_item)


def _read_item(item: str | Mapping[str, Any]) -> Iterator[JsonObject]:
    """What a user gives: a text, or an object whose ``kind`` says what it is."""
    if isinstance(item, str):
        yield messages.text_part(storable_text(item))
    elif item["kind"] in {"text-content", "structured-content"}:
        yield messages.text_part(storable_text(item["content"]))
    elif item["kind"] == "image-url":
        yield messages.image_part(media_type=item.get("media_type") or "", url=item["url"])
    elif item["kind"] in {"audio-url", "video-url", "document-url", "binary", "uploaded-file"}:
        media_type, data = item.get("media_type") or "", standard_base64(item.get("data") or "")
        yield media_part(media_type, data=data, url=item.get("url"), file_id=item.get("file_id"))


def _read_answer_part(part: Mapping[str, Any]) -> Iterator[JsonObject]:
    if part["part_kind"] == "text":
        yield messages.text_part(storable_text(part["content"]))
    elif part["part_kind"] == "thinking":
        yield messages.thinking_part(storable_text(part["content"]))
    elif part["part_kind"] == "speech" and part.get("transcript"):
        yield messages.text_part(storable_text(part["transcript"]))
    elif part["part_kind"] == "file":
        yield from _read_item(part["content"])
