"""The Lua scripts, each one atomic method; loaded once, known to servers by their hash."""

import hashlib
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Final

_FOLDER: Final = files("helix_temporal.stores.redis") / "lua"


@dataclass(frozen=True, slots=True)
class Script:
    """A script's text and the SHA-1 that EVALSHA wants (a name, not a protection)."""

    name: str
    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "sha", digest)


def assembled(name: str, *before: str, **functions: str) -> Script:
    """A script after parts that it shares with others, and after scripts that it calls as functions.

    Args:
        name: Of its file.
        before: Files put before it, in this order.
        functions: Names of functions, and the files they are made of; each takes KEYS and ARGV.
    """
    parts = [_text(each) for each in before]
    parts += [f"local function {each}(KEYS, ARGV)\n{_text(file)}\nend" for each, file in functions.items()]
    return Script(name, "\n".join((*parts, _text(name))))


def _text(name: str) -> str:
    return (_FOLDER / f"{name}.lua").read_text("utf-8")


HEADER: Final = assembled("header", "_record")
SNAPSHOT: Final = assembled("snapshot", "_record")
PAGE: Final = assembled("page", "_record")
STEP_VIEW: Final = assembled("step_view", "_record")
APPEND: Final = assembled("append", "_record")
REBASE: Final = assembled("rebase", "_record")
INSTALL: Final = assembled("install", "_record")
EVICT: Final = assembled("evict", "_record")
TRIM: Final = assembled("trim", "_record")
CLOSE_EPOCH: Final = assembled("close_epoch", "_record")
SAVE_SLICE: Final = assembled("save_slice", "_record")
DROP: Final = assembled("drop", "_record")
DROP_DAMAGED: Final = assembled("drop_damaged", "_record")
PAYLOAD_PUT: Final = assembled("payload_put")

STAGE: Final = _text("stage")
"""Short, and sent in pipelines, where EVALSHA could not fall back: always sent as text."""
