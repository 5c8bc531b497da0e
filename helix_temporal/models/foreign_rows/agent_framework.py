"""Messages of Microsoft's agent-framework: a role, and contents."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from helix_temporal.models import messages
from helix_temporal.models.base import JsonObject, storable_text
from helix_temporal.models.foreign_rows.content import media_part, part_at_address, read_content
from helix_temporal.models.foreign_rows.row import ROLES, ForeignRow, NamedCall


def read_framework_message(message: Mapping[str, Any]) -> ForeignRow:
    """A message; a request to approve a call is answered as a call is, by a content of the user's."""
    contents = message["contents"]
    calls = [NamedCall(each["call_id"], each["name"]) for each in _of_type(contents, "function_call")]
    results = [NamedCall(each["call_id"]) for each in _of_type(contents, "function_result")]
    calls += [NamedCall(each["id"]) for each in _of_type(contents, "function_approval_request")]
    results += [NamedCall(each["id"]) for each in _of_type(contents, "function_approval_response")]
    said = partial(read_content, contents, _read_part)
    return ForeignRow(calls, results, ROLES.get(message["role"]), said)


def _of_type(contents: Iterable[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    """The contents of a type, but for calls that the service itself carries out."""
    return [each for each in contents if each["type"] == kind and not each.get("hosted")]


def _read_part(part: Mapping[str, Any]) -> Iterator[JsonObject]:
    kind, media_type = part["type"], part.get("media_type") or ""
    if kind == "text":
        yield messages.text_part(storable_text(part["text"]))
    elif kind == "text_reasoning" and part.get("text"):
        yield messages.thinking_part(storable_text(part["text"]))
    elif kind == "data":
        yield part_at_address(
            part["uri"], messages.image_part if media_type.startswith("image/") else messages.file_part
        )
    elif kind == "uri":
        yield media_part(media_type, url=part["uri"])
    elif kind == "hosted_file":
        yield media_part(media_type, file_id=part["file_id"])
