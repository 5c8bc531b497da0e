"""Blob keys as file paths and back: one key, one path, on any file system.

Lower-case letters, digits, ``_`` and ``-`` stand for themselves, and a dot between two letters or digits;
every other byte is ``%hh``.  So file systems that fold case or Unicode forms keep keys apart, and no part
is hidden, reserved or climbs.  A file ends in ``.blob``, which no folder does, so ``a`` and ``a/b`` can
both be there.  Parts too long for a file name go on in a folder below: a lone ``%`` at the end says so.
"""

import re
import urllib.parse
from pathlib import PurePosixPath

SUFFIX = ".blob"
_MAX_NAME = 200
_KEPT = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")
_DOT_KEPT = re.compile(rb"(?<=[a-z0-9])\.(?=[a-z0-9])")


def path_of(key: str) -> PurePosixPath:
    """The relative path of the file that holds ``key``, which has passed ``check_key``."""
    *folders, name = key.split("/")
    return folder_of(folders) / _long(_encoded(name), ending=SUFFIX)


def folder_of(parts: list[str]) -> PurePosixPath:
    """The relative path of the folder that holds all keys whose first parts are ``parts``."""
    path = PurePosixPath()
    for part in parts:
        path /= _long(_folder(_encoded(part)))
    return path


def key_of(path: PurePosixPath) -> str | None:
    """The key that is kept at a relative path, or None for a file that no key has."""
    if not path.name.endswith(SUFFIX):
        return None
    text = path.as_posix().removesuffix(SUFFIX).replace("%/", "")
    key = urllib.parse.unquote_to_bytes(text).decode("utf-8", "replace")
    return key if key and path_of(key) == path else None


def _encoded(part: str) -> str:
    raw = part.encode()
    dots = {match.start() for match in _DOT_KEPT.finditer(raw)}
    return "".join(
        chr(byte) if byte in _KEPT or place in dots else f"%{byte:02x}" for place, byte in enumerate(raw)
    )


def _folder(name: str) -> str:
    return f"{name.removesuffix(SUFFIX)}%2eblob" if name.endswith(SUFFIX) else name


def _long(name: str, *, ending: str = "") -> PurePosixPath:
    chunks = [name[start : start + _MAX_NAME] for start in range(0, len(name), _MAX_NAME)]
    return PurePosixPath(*(f"{chunk}%" for chunk in chunks[:-1]), chunks[-1] + ending)
