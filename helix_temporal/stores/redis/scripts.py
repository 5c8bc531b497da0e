"""The Lua scripts, each one atomic method; loaded once, known to servers by their hash."""

import hashlib
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Final

_FOLDER: Final = files("helix_temporal.stores.redis") / "lua"
_RECORD: Final = (_FOLDER / "_record.lua").read_text("utf-8")


@dataclass(frozen=True, slots=True)
class Script:
    """A script's text and the SHA-1 that EVALSHA wants (a name, not a protection)."""

    name: str
    text: str
    sha: str = field(init=False)
    command: bytes = field(init=False, repr=False)
    """The first two arguments of a call by hash, as the protocol wants them."""

    def __post_init__(self) -> None:
        digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "sha", digest)
        object.__setattr__(self, "command", b"$7\r\nEVALSHA\r\n$40\r\n%b\r\n" % digest.encode())


def _script(name: str) -> Script:
    return Script(name, f"{_RECORD}\n{(_FOLDER / f'{name}.lua').read_text('utf-8')}")


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


HEADER: Final = _script("header")
SNAPSHOT: Final = _script("snapshot")
PAGE: Final = _script("page")
STEP_VIEW: Final = _script("step_view")
APPEND: Final = _script("append")
REBASE: Final = _script("rebase")
INSTALL: Final = _script("install")
EVICT: Final = _script("evict")
TRIM: Final = _script("trim")
CLOSE_EPOCH: Final = _script("close_epoch")
SAVE_SLICE: Final = _script("save_slice")
DROP: Final = _script("drop")
DROP_DAMAGED: Final = _script("drop_damaged")
PAYLOAD_PUT: Final = assembled("payload_put")

STAGE: Final = (_FOLDER / "stage.lua").read_text("utf-8")
"""Short, and sent in pipelines, where EVALSHA could not fall back: always sent as text."""
