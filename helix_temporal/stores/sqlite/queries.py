"""The named statements."""

import re
from functools import lru_cache
from importlib.resources import files
from typing import Final

_FOLDER: Final = files("helix_temporal.stores.sqlite") / "sql"
_NAME: Final = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT: Final = re.compile(r"^\s*--.*\n", re.MULTILINE)


def schema() -> list[str]:
    """The statements that make the tables of a new database, in order."""
    text = _COMMENT.sub("", (_FOLDER / "schema.sql").read_text("utf-8"))
    return [each.strip() for each in text.split(";") if each.strip()]


def statement(name: str, **fills: str) -> str:
    """A statement, ready to send.

    Args:
        name: As it stands behind ``-- name:`` in one of the files.
        fills: Fixed texts for what stands in braces; never one of a caller's.
    """
    text = _statements()[name]
    for place, fill in fills.items():
        text = text.replace(f"{{{place}}}", fill)
    return text


def names() -> list[str]:
    """Of all statements."""
    return sorted(_statements())


@lru_cache(1)
def _statements() -> dict[str, str]:
    found: dict[str, str] = {}
    for path in _FOLDER.iterdir():
        if path.name.endswith(".sql") and path.name != "schema.sql":
            _, *parts = _NAME.split(path.read_text("utf-8"))
            texts = (_COMMENT.sub("", text).strip() for text in parts[1::2])
            found.update(zip(parts[::2], texts, strict=True))
    return found
