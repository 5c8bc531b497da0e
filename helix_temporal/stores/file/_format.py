"""A document as bytes, and its file's name: pure.

::

    helix-document 1 <length of the next line> <its SHA-256>
    {"id": "…", "parts": {"thread": {"header": {…}, "size": 123, "sha256": "…"}, …}}
    bodies of the parts, in that order

The first line has a fixed length and stands for the whole content: two documents that agree in it are
the same.  The second line can be read and checked without the bodies, which is what listings do.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import orjson

from helix_temporal.errors import StoreCorruptError, UnsupportedFormatError
from helix_temporal.models.base import dumps
from helix_temporal.models.ids import decode_id, encode_id

SUFFIX: Final = ".helix"
FIRST_LINE: Final = len("helix-document 1 ") + 10 + 1 + 64 + 1
"""Bytes of the first line, its end included."""

_FIRST = re.compile(rb"helix-document 1 (\d{10}) ([0-9a-f]{64})\n")
_OTHER_FORMAT = re.compile(rb"helix-document (\d{1,6}) ")
_MAX_NAME = 160
_UPPER = re.compile("[A-Z]")
_ESCAPED = re.compile(r"\+([a-z])")

Facts = Mapping[str, Any]
"""What JSON can hold; a part's header, which listings read."""


class Part:
    """One named part of a document.

    Attributes:
        header: Small facts, JSON-compatible.
        body: The rest.
        value: What a store made of it, so that it need not do so again; not stored.
    """

    def __init__(self, header: Facts, body: bytes, value: object = None) -> None:
        self.header = header
        self.body = body
        self.value = value

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the body; an unchanged part is not hashed again."""
        return hashlib.sha256(self.body).hexdigest()


Parts = Mapping[str, Part]


@dataclass(frozen=True, slots=True)
class Heading:
    """What a document's first two lines say: whose it is, and the headers of its parts."""

    id: str
    headers: Mapping[str, Facts]
    sizes: Mapping[str, tuple[int, str]]


# ---- names ------------------------------------------------------------------------------------------


def name_of(document_id: str) -> str:
    """The file name of a document, without suffix.

    Capitals are ``+a``: file systems that fold case keep ``ADMIN`` and ``admin`` apart.
    """
    name = _UPPER.sub(lambda found: f"+{found[0].lower()}", encode_id(document_id))
    if len(name) <= _MAX_NAME:
        return name
    # Room for suffixes on file systems that allow fewer than 255 bytes.
    return f"{name[:60]}~{hashlib.sha256(document_id.encode()).hexdigest()[:32]}"


def id_of(name: str) -> str | None:
    """Inverse of `name_of`, None where the name does not tell."""
    found = decode_id(_ESCAPED.sub(lambda escaped: escaped[1].upper(), name))
    return found if found is not None and name_of(found) == name else None


# ---- bytes ------------------------------------------------------------------------------------------


def encode_document(document_id: str, parts: Parts) -> list[bytes]:
    """The pieces of a document's file; the first is its first line."""
    described = {
        name: {"header": part.header, "size": len(part.body), "sha256": part.digest}
        for name, part in parts.items()
    }
    line = dumps({"id": document_id, "parts": described}) + b"\n"
    first = b"helix-document 1 %010d %s\n" % (len(line), hashlib.sha256(line).hexdigest().encode())
    return [first, line, *(part.body for part in parts.values())]


def heading_size(first: bytes, where: str) -> int:
    """Bytes of the first two lines, as the first one says.

    Raises:
        StoreCorruptError: It is not the first line of a document.
        UnsupportedFormatError: A newer version wrote it.
    """
    if found := _FIRST.fullmatch(first):
        return FIRST_LINE + int(found[1])
    if (other := _OTHER_FORMAT.match(first)) and other[1] != b"1":
        raise UnsupportedFormatError(
            f"{where} has format {other[1].decode()}, this version reads 1; upgrade helix_temporal"
        )
    raise damaged(where, f"it begins with {len(first)} bytes that no document begins with")


def decode_heading(lines: bytes, where: str) -> Heading:
    """Parse the first two lines.

    Raises:
        StoreCorruptError: They are cut or changed.
        UnsupportedFormatError: A newer version wrote them.
    """
    size = heading_size(lines[:FIRST_LINE], where)
    line = lines[FIRST_LINE:size]
    if len(lines) < size:
        raise damaged(where, f"it is cut after {len(lines)} bytes, inside its heading of {size}")
    if hashlib.sha256(line).hexdigest().encode() != lines[FIRST_LINE - 65 : FIRST_LINE - 1]:
        raise damaged(where, "its heading has another checksum")
    try:
        found = orjson.loads(line)
        parts = found["parts"].items()
        headers = {name: dict(part["header"]) for name, part in parts}
        sizes = {name: (int(part["size"]), str(part["sha256"])) for name, part in parts}
        return Heading(str(found["id"]), headers, sizes)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(where, "its heading is not one of ours") from error


def decode_document(data: bytes, where: str) -> tuple[Heading, dict[str, Part]]:
    """Parse and verify a whole document.

    Raises:
        StoreCorruptError: Something of it is missing, changed or too much.
        UnsupportedFormatError: A newer version wrote it.
    """
    heading = decode_heading(data, where)
    at = heading_size(data[:FIRST_LINE], where)
    expected = at + sum(size for size, _ in heading.sizes.values())
    if len(data) != expected:
        raise damaged(where, f"it has {len(data)} bytes, its heading says {expected}")
    parts: dict[str, Part] = {}
    for name, (size, digest) in heading.sizes.items():
        part = Part(heading.headers[name], data[at : at + size])
        if part.digest != digest:
            raise damaged(where, f"its part {name!r} has another checksum")
        parts[name] = part
        at += size
    return heading, parts


def damaged(where: str, what: str) -> StoreCorruptError:
    """The error for a document that cannot be trusted."""
    return StoreCorruptError(f"{where} is damaged: {what}; restore it from a backup or move it away")
