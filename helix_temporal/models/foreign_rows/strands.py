"""Messages of Strands: those of the Converse API, plain or in the envelope of its sessions."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from helix_temporal.models import messages
from helix_temporal.models.base import JsonObject, storable_text
from helix_temporal.models.foreign_rows.content import media_part, read_content
from helix_temporal.models.foreign_rows.row import ROLES, ForeignRow, NamedCall


def read_strands_message(row: Mapping[str, Any]) -> ForeignRow:
    """A message; one that was redacted says what stands in its place."""
    message = row.get("redact_message") or row.get("message") or row
    blocks = message["content"]
    calls = [block["toolUse"] for block in blocks if "toolUse" in block]
    results = [block["toolResult"] for block in blocks if "toolResult" in block]
    return ForeignRow(
        [NamedCall(call["toolUseId"], call["name"]) for call in calls],
        [NamedCall(result["toolUseId"]) for result in results],
        ROLES[message["role"]],
        partial(read_content, blocks, _read_part),
    )


def _read_part(block: Mapping[str, Any]) -> Iterator[JsonObject]:
    if isinstance(block.get("text"), str):
        yield messages.text_part(storable_text(block["text"]))
    elif "reasoningContent" in block:
        reasoning = block["reasoningContent"].get("reasoningText") or {}
        if reasoning.get("text"):
            yield messages.thinking_part(storable_text(reasoning["text"]))
    elif "citationsContent" in block:
        for each in block["citationsContent"].get("content") or ():
            yield from _read_part(each)
    else:
        kind = next((each for each in ("image", "document", "video", "audio") if each in block), None)
        if kind is not None:
            yield _read_media(kind, block[kind])


def _read_media(kind: str, media: Mapping[str, Any]) -> JsonObject:
    """Bytes are base64, in an object that says so where a session wrote them."""
    source, form = media["source"], media["format"]
    data = source.get("bytes")
    media_type = f"{'application' if kind == 'document' else kind}/{form}"
    return media_part(
        media_type,
        name=media.get("name"),
        data=data["data"] if isinstance(data, Mapping) else data,
        url=(source.get("s3Location") or source.get("location") or {}).get("uri"),
    )
