"""What all blob stores agree on: which keys are good, how etags are made, which conditions go together."""

import hashlib
import re

from helix_temporal.errors import InvalidRequestError

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
