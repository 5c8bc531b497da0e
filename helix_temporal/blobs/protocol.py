"""What the cold tier needs of an object store, and what all of them agree on."""

import hashlib
import re
from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol

from helix_temporal.errors import InvalidRequestError


class Blob(NamedTuple):
    """An object's bytes and the tag that a conditional replace names (opaque, unquoted)."""

    data: bytes
    etag: str


class BlobInfo(NamedTuple):
    """One line of a listing.

    Attributes:
        modified: When the object was last written: seconds since 1970 by the store's clock, to the second
            at least; None if the store does not tell.
    """

    key: str
    size: int
    etag: str
    modified: float | None = None


class ConditionFailedError(Exception):
    """A conditional write was refused: 412, 409, or 404 under If-Match.

    Never proof that somebody else won: an HTTP client that re-sends a PUT on a dropped connection
    gets this for its own success.  The caller reads back.  Internal: it never leaves the cold tier.
    """


class BlobStore(Protocol):
    """Objects by key.  No client observes a partly written object.

    Raises (every method):
        StoreUnavailableError: Throttled, 5xx, time-out or connection lost; a write may have happened,
            or may still happen later.
        ArchiveAccessError: The bucket is missing or access is denied.
    """

    async def get(self, key: str) -> Blob | None:
        """The whole object; None if and only if it is not there (a missing bucket is an error)."""
        ...

    async def put(self, key: str, data: bytes, *, create: bool = False, if_match: str | None = None) -> str:
        """Write the object in one request and return its etag.

        ``create`` writes only if nothing is there; ``if_match`` only over that very etag.

        Raises:
            ConditionFailedError: The condition did not hold, as far as the server's answer tells.
        """
        ...

    async def copy(self, source: str, target: str) -> None:
        """Copy within the store, on the server's side; overwrites.

        Raises:
            ConditionFailedError: The source is not there.
        """
        ...

    def list(self, prefix: str) -> AsyncIterator[BlobInfo]:
        """All objects whose key starts with ``prefix``, in any order."""
        ...

    async def delete(self, key: str) -> None:
        """Remove the object; nothing if it is not there."""
        ...

    async def probe(self, prefix: str) -> None:
        """Prove at start-up that conditional writes work here, on objects of its own below ``prefix``.

        Raises:
            ConditionalWritesUnsupportedError: Creating twice or a stale If-Match succeeded.
        """
        ...

    async def close(self) -> None:
        """Give back connections."""
        ...


MAX_KEY_BYTES = 1024
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def check_key(key: str) -> None:
    r"""Refuse keys that some server or file system would take for another one.

    S3 itself stores ``a//b``, ``a/../b`` and ``a\b`` as they are, but servers that keep objects as
    files fold them into ``a/b`` or refuse them, and tools that copy buckets to disks follow them.

    Raises:
        InvalidRequestError: Empty, above 1,024 bytes of UTF-8, not Unicode text, with control
            characters or a backslash, or with an empty, ``.`` or ``..`` part between slashes.
    """
    _check_text(key)
    if not key or any(part in ("", ".", "..") for part in key.split("/")):
        raise InvalidRequestError(
            f"blob key {key!r} has an empty, '.' or '..' part; parts between slashes need a name", key=key
        )


def check_prefix(prefix: str) -> None:
    """Refuse prefixes that no good key can start with.  The empty prefix means everything.

    Raises:
        InvalidRequestError: As for keys; only the part after the last slash may be anything.
    """
    _check_text(prefix)
    folder = prefix.rpartition("/")[0]
    if "/" in prefix:
        check_key(folder)


def check_conditions(create: bool, if_match: str | None) -> None:
    """Refuse a write that asks for nothing to be there and for something to be there.

    Raises:
        InvalidRequestError: Both conditions are given, or the etag is empty or quoted.
    """
    if create and if_match is not None:
        raise InvalidRequestError("create and if_match exclude each other; give one of them")
    if if_match is not None and (not if_match or '"' in if_match):
        raise InvalidRequestError(f"if_match must be an etag without quotes, found {if_match!r}")


def etag_of(data: bytes) -> str:
    """The etag S3 gives to an object written in one request: the same bytes, the same etag."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _check_text(key: str) -> None:
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise InvalidRequestError(f"blob key {key!r} is not Unicode text (lone surrogate)") from None
    if size > MAX_KEY_BYTES:
        raise InvalidRequestError(
            f"blob key of {size} bytes; at most {MAX_KEY_BYTES} are possible", size=size
        )
    if _CONTROL.search(key) or "\\" in key:
        raise InvalidRequestError(f"blob key {key!r} has a control character or a backslash", key=key)
