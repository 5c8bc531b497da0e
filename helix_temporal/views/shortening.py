"""Long texts and values cut for a page, which tells how much it leaves out."""

import json
from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

PAGE_CHARACTERS: Final = 4_000
"""Of one text, or of the arguments or the result of one call, on a page."""


def shorten_text(text: str, most: int | None) -> tuple[str, int]:
    """The beginning of a text, and how many characters are left out; all of it where ``most`` is None."""
    if most is None or len(text) <= most:
        return text, 0
    return text[:most], len(text) - most


def shorten_value(value: JsonValue, most: int | None) -> tuple[JsonValue, int]:
    """A JSON value with about so many characters, and how many are left out.

    Strings are cut, and items of lists and objects left out from the end; what is left is JSON all the same.
    """
    if most is None or (isinstance(value, str) and len(value) <= most) or count_characters(value) <= most:
        return value, 0
    budget = _Budget(most)
    return budget.shorten(value), budget.left_out


def shorten_object(value: Mapping[str, JsonValue], most: int | None) -> tuple[dict[str, JsonValue], int]:
    """As `shorten_value`."""
    given = dict(value)
    shown, left_out = shorten_value(given, most)
    return (shown if isinstance(shown, dict) else given), left_out


def count_characters(value: JsonValue) -> int:
    """How long the value is as JSON."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


class _Budget:
    """Characters that are left for a value."""

    def __init__(self, most: int) -> None:
        self.left, self.left_out = most, 0

    def shorten(self, value: JsonValue) -> JsonValue:
        """The value as far as it fits."""
        if isinstance(value, str):
            shown, left_out = shorten_text(value, max(self.left, 0))
            self.left -= len(shown)
            self.left_out += left_out
            return shown
        if isinstance(value, list):
            return [self.shorten(each) for each in value if self._has_room(each)]
        if isinstance(value, dict):
            return {name: self.shorten(each) for name, each in value.items() if self._has_room(each, name)}
        self.left -= count_characters(value)
        return value

    def _has_room(self, item: JsonValue, name: str = "") -> bool:
        if self.left > 0:
            self.left -= len(name) + 1
            return True
        self.left_out += len(name) + count_characters(item)
        return False
