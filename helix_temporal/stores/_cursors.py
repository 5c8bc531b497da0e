"""Cursors: opaque to callers, a place in an order to us; the same form on all backends."""

import base64
import binascii
from typing import Final

import orjson

from helix_temporal.errors import InvalidCursorError
from helix_temporal.models._json import check_text, dumps

_MOST: Final = 4096


def encode_cursor(scope: str, order: int, key: str) -> str:
    """A cursor that goes on beyond (order, key) of a list; ``scope`` names the list and its order."""
    return base64.urlsafe_b64encode(dumps([scope, order, key])).decode().rstrip("=")


def decode_cursor(scope: str, cursor: str) -> tuple[int, str]:
    """Where to go on.

    Raises:
        InvalidCursorError: It is no cursor, or one of another list or order.
    """
    if len(cursor) > _MOST:
        raise InvalidCursorError("cursor: not one that this store gave out")
    try:
        found = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error):
        raise InvalidCursorError("cursor: not one that this store gave out") from None
    match found:
        case [str() as made_for, int() as order, str() as key] if not isinstance(order, bool):
            if made_for != scope:
                raise InvalidCursorError("cursor: it belongs to another list or order; start that one anew")
            if not -(2**63) <= order < 2**63:
                raise InvalidCursorError("cursor: not one that this store gave out")
            check_text(key, "cursor")
            return order, key
    raise InvalidCursorError("cursor: not one that this store gave out")
