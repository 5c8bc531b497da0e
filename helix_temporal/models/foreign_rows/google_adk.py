"""Events of Google's ADK, with names in snake case or, as they are written by alias, in camel case."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from helix_temporal.models.foreign_rows.content import google_said, standard_base64
from helix_temporal.models.foreign_rows.row import ForeignRow, NamedCall


def read_adk_event(event: Mapping[str, Any]) -> ForeignRow:
    """An event; one that is partial, or has actions alone, says nothing."""
    author = event["author"]
    if event.get("partial") or not event.get("content"):
        return ForeignRow()
    parts = [_read_part(part) for part in event["content"].get("parts") or ()]
    calls = list(_name_calls(parts, "functionCall"))
    results = list(_name_calls(parts, "functionResponse"))
    # A result has the role of a user, whoever the author is.
    said = partial(google_said, parts)
    return ForeignRow(calls, results, "user" if author == "user" else "assistant", said)


def _name_calls(parts: list[dict[str, Any]], member: str) -> Iterator[NamedCall]:
    return (NamedCall(part[member].get("id"), part[member].get("name")) for part in parts if member in part)


def _read_part(part: Mapping[str, Any]) -> dict[str, Any]:
    """The part with the names and the base64 of the Gemini API."""
    found = {_camel(name): value for name, value in part.items() if value is not None}
    for name in ("inlineData", "fileData"):
        if name in found:
            data = {_camel(key): value for key, value in found[name].items()}
            found[name] = data | ({"data": standard_base64(data["data"])} if data.get("data") else {})
    return found


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)
