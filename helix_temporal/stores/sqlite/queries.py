"""The named statements."""

import re
from functools import lru_cache
from importlib.resources import files
from typing import Final

_FOLDER: Final = files("helix_temporal.stores.sqlite") / "sql"
_NAME: Final = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT: Final = re.compile(r"^\s*--.*\n", re.MULTILINE)
_INCLUDE: Final = re.compile(r"\{include:([a-z_]+)\}")


def schema_statements() -> list[str]:
    """The statements that make the tables of a new database, in order."""
    text = _COMMENT.sub("", (_FOLDER / "schema.sql").read_text("utf-8"))
    return [each.strip() for each in text.split(";") if each.strip()]


def load_statement(name: str) -> str:
    """A statement, ready to send.

    In a file, ``{include:name}`` puts in a part; parts have names that begin with ``_``.

    Args:
        name: As it stands behind ``-- name:`` in one of the files.
    """
    return _load_statements()[name]


def statement_names() -> list[str]:
    """Of all statements."""
    return sorted(_load_statements())


@lru_cache(1)
def _load_statements() -> dict[str, str]:
    found: dict[str, str] = {}
    for path in _FOLDER.iterdir():
        if path.name.endswith(".sql") and path.name != "schema.sql":
            _, *parts = _NAME.split(path.read_text("utf-8"))
            texts = (_COMMENT.sub("", text).strip() for text in parts[1::2])
            found.update(zip(parts[::2], texts, strict=True))
    return {
        name: _INCLUDE.sub(lambda include: found[f"_{include[1]}"], text)
        for name, text in found.items()
        if not name.startswith("_")
    }
