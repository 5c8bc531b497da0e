"""Calls and results in rows of other systems: their arguments and results, found by the id of the call."""

import json
from collections import deque
from collections.abc import Iterator
from typing import Final

from pydantic import JsonValue

from helix_temporal.models.base import is_accepted_json, parse_json_text
from helix_temporal.models.messages import Message

_ARGUMENTS: Final = ("arguments", "args", "input", "parameters")
_RESULTS: Final = ("output", "content", "result", "response", "data")


def find_arguments(row: Message, call_id: str | None, name: str | None) -> JsonValue:
    """The arguments of a call in a row; None where they are not found."""
    return _find_value(row, call_id, name, _ARGUMENTS)


def find_result(row: Message, call_id: str | None, name: str | None) -> JsonValue:
    """The result of a call in a row; the row's text where it is not found."""
    found = _find_value(row, call_id, name, _RESULTS)
    return row.text if found is None else found


def _find_value(row: Message, call_id: str | None, name: str | None, keys: tuple[str, ...]) -> JsonValue:
    try:
        content: JsonValue = json.loads(row.text)
    except (ValueError, RecursionError):
        return None
    for each in _walk_objects(content):
        values = [value for value in each.values() if isinstance(value, str)]
        if not (call_id in values if call_id is not None else name in values):
            continue
        found = next((each[key] for key in keys if each.get(key) is not None), None)
        if found is not None:
            return _parse_text(found) if is_accepted_json(found) else row.text
    return None


def _walk_objects(value: JsonValue) -> Iterator[dict[str, JsonValue]]:
    """All objects in a value, outer ones first."""
    waiting = deque([value])
    while waiting:
        each = waiting.popleft()
        if isinstance(each, dict):
            yield each
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each


def _parse_text(value: JsonValue) -> JsonValue:
    """Arguments are often JSON in a text."""
    parsed = parse_json_text(value) if isinstance(value, str) else None
    return value if parsed is None else parsed
