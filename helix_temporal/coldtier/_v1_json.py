"""Pure: JSON as JavaScript writes it, which says more than stores of ours can hold."""

import json
import re
from typing import Any, Final

from helix_temporal.models._json import MAX_DEPTH, clean

_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},]')
_READABLE: Final = 600
"""So many levels leave the interpreter, which allows a thousand calls, enough for those around it."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def stringify(value: Any) -> str:
    """As ``JSON.stringify``: no spaces, nothing escaped but controls and halves of surrogate pairs."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def fit_for_stores(value: Any, depth: int = 0) -> Any:
    """The value as every store can hold it.

    U+0000 and halves of surrogate pairs become U+FFFD, integers over 64 bits the floats that they are in
    JavaScript, and what is nested deeper than 64 levels its JSON text.
    """
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return float(value)
    if isinstance(value, dict | list) and depth >= MAX_DEPTH:
        return clean(stringify(value))
    if isinstance(value, dict):
        return {clean(key): fit_for_stores(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list):
        return [fit_for_stores(each, depth + 1) for each in value]
    return value


def as_before(value: Any, before: Any, depth: int = 0) -> Any:
    """The value, with what nobody changed since as it was before it was made fit for stores."""
    if value == fit_for_stores(before, depth):
        return before
    if not isinstance(value, dict) or not isinstance(before, dict):
        return value
    keys = {clean(key): key for key in before}
    return {
        keys.get(key, key): as_before(each, before.get(keys.get(key)), depth + 1)
        for key, each in value.items()
    }


def is_too_deep(text: str) -> bool:
    """Whether the JSON text is nested too deep to be read and written by what calls itself for each level."""
    if text.count("[") + text.count("{") <= _READABLE:
        return False
    depth = 0
    for token in _TOKEN.finditer(text):
        if token[0] in "[{":
            depth += 1
            if depth > _READABLE:
                return True
        elif token[0] in "]}":
            depth -= 1
    return False


def shallow(text: str, levels: int) -> str:
    """The JSON text with what is nested deeper than this as texts."""
    found: list[str] = []
    depth, done, begun = 0, 0, 0
    for token in _TOKEN.finditer(text):
        if token[0] in "[{":
            depth += 1
            if depth == levels + 1:
                begun = token.start()
                found.append(text[done:begun])
        elif token[0] in "]}":
            depth -= 1
            if depth == levels:
                done = token.end()
                found.append(stringify(text[begun:done]))
    return "".join([*found, text[done:]])


def member_text(text: str, name: str) -> str:
    """The text of a member of the JSON object that this is; ``null`` if it has none."""
    depth, begun, last = 0, None, ""
    for token in _TOKEN.finditer(text):
        if token[0][0] == '"':
            if depth == 1 and begun is None and _names(token[0], name) and last in "{,":
                begun = text.index(":", token.end()) + 1
        elif token[0] in "[{":
            depth += 1
        else:
            if depth == 1 and begun is not None:
                return text[begun : token.start()].strip()
            depth -= token[0] in "]}"
        last = token[0][0]
    return "null"


def _names(token: str, name: str) -> bool:
    return len(token) < 100 and json.loads(token) == name
