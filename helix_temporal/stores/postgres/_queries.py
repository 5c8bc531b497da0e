"""The named statements: one ``.sql`` file each, their tables' prefix filled in once."""

import re
from functools import lru_cache
from importlib.resources import files
from typing import Final

from helix_temporal.stores.postgres._names import check_prefix

_FOLDER: Final = files("helix_temporal.stores.postgres") / "sql"
_INCLUDE: Final = re.compile(r"\{include:([a-z_]+)(?:\+(\d+))?\}")
_ARGUMENT: Final = re.compile(r"\$(\d+)")
_COMMENT: Final = re.compile(r"^\s*--.*\n", re.MULTILINE)

NOW: Final = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
"""The server's clock in ms."""


class Queries:
    """The statements of one prefix, by name.

    In a file, ``{prefix}`` (always inside double quotes) is the prefix and ``{now}`` the server's clock
    in ms.  ``{include:name}`` puts in a part, and ``{include:name+3}`` the same with its arguments
    numbered from ``$4`` on; parts are files that begin with ``_``.

    Raises:
        InvalidConfigError: See `check_prefix`.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = check_prefix(prefix)
        self._texts: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        """The statement of that name, ready to send."""
        text = self._texts.get(name)
        if text is None:
            text = self._texts[name] = statement(name).replace("{prefix}", self.prefix)
        return text


@lru_cache(256)
def statement(name: str) -> str:
    """A statement with its parts put in and ``{prefix}`` still in it."""
    return _filled(name).replace("{now}", NOW)


def names() -> list[str]:
    """Of all statements."""
    found = (path.name for path in _FOLDER.iterdir())
    return sorted(n.removesuffix(".sql") for n in found if n.endswith(".sql") and not n.startswith("_"))


def shifted(text: str, by: int) -> str:
    """The text with its arguments numbered from ``$by + 1`` on."""
    return _ARGUMENT.sub(lambda found: f"${int(found[1]) + by}", text)


def _filled(name: str) -> str:
    text = _COMMENT.sub("", (_FOLDER / f"{name}.sql").read_text("utf-8")).strip()
    return _INCLUDE.sub(lambda found: shifted(_filled(f"_{found[1]}"), int(found[2] or 0)), text)
