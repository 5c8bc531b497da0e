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


def assemble_script(name: str, *before: str, **functions: str) -> Script:
    """A script after parts that it shares with others, and after scripts that it calls as functions.

    Args:
        name: Of its file.
        before: Files put before it, in this order.
        functions: Names of functions, and the files they are made of; each takes KEYS and ARGV.
    """
    parts = [_read_script_file(each) for each in before]
    parts += [
        f"local function {each}(KEYS, ARGV)\n{_read_script_file(file)}\nend"
        for each, file in functions.items()
    ]
    return Script(name, "\n".join((*parts, _read_script_file(name))))


def _read_script_file(name: str) -> str:
    return (_FOLDER / f"{name}.lua").read_text("utf-8")


HEADER: Final = assemble_script("header", "_thread")
SNAPSHOT: Final = assemble_script("snapshot", "_thread")
PAGE: Final = assemble_script("page", "_thread")
STEP_VIEW: Final = assemble_script("step_view", "_thread")
APPEND: Final = assemble_script("append", "_thread")
REBASE: Final = assemble_script("rebase", "_thread")
INSTALL: Final = assemble_script("install", "_thread")
EVICT: Final = assemble_script("evict", "_thread")
TRIM: Final = assemble_script("trim", "_thread")
CLOSE_EPOCH: Final = assemble_script("close_epoch", "_thread")
MARK_ARCHIVED: Final = assemble_script("mark_archived")
SAVE_SLICE: Final = assemble_script("save_slice", "_thread")
DROP: Final = assemble_script("drop", "_thread")
DROP_DAMAGED: Final = assemble_script("drop_damaged", "_thread")
PAYLOAD_PUT: Final = assemble_script("payload_put")

STAGE: Final = _read_script_file("stage")
"""Short, and sent in pipelines, where EVALSHA could not fall back: always sent as text."""
