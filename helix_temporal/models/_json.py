"""JSON values as we accept them, and the one way to turn them into bytes.

Checked before anything else looks at a value, so that neither pydantic nor a store meets a value
that it would change or choke on.
"""

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import orjson
from pydantic import BeforeValidator, JsonValue

from helix_temporal.errors import InvalidMessageError

MAX_DEPTH = 64
MAX_DIGITS = 4300
"""Python's own limit for converting integers from and to text."""
_MAX_BITS = 14_285
"""What an integer of so many digits has at most."""

JsonObject = dict[str, JsonValue]


def check_json(value: object, where: str = "$") -> None:
    """Accept JSON values that survive every store unchanged.

    Raises:
        InvalidMessageError: The value is not JSON, nested deeper than 64, cyclic, holds a number
            that is not finite or outside 64 bits, or text with NUL or a lone surrogate; the message
            names the place.
    """
    if isinstance(value, str):
        check_text(value, where)
    else:
        _check(value, where, 0, set())


def _check(value: object, where: str, depth: int, above: set[int]) -> None:
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        check_text(value, where)
    elif isinstance(value, int):
        _check_integer(value, where)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidMessageError(f"{value} not allowed at {where}: numbers must be finite")
    elif isinstance(value, Mapping | list | tuple):
        _check_container(value, where, depth, above)
    else:
        raise InvalidMessageError(f"not JSON: {type(value).__name__} at {where}")


def _check_container(
    value: Mapping[object, object] | list[object] | tuple[object, ...],
    where: str,
    depth: int,
    above: set[int],
) -> None:
    if id(value) in above:
        raise InvalidMessageError(f"cycle at {where}")
    if depth >= MAX_DEPTH:
        raise InvalidMessageError(f"nesting over {MAX_DEPTH} levels at {where[:80]}")
    above.add(id(value))
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidMessageError(f"string keys expected, got {type(key).__name__} at {where}")
            check_text(key, f"{where} (key)")
            _check(item, f"{where}.{key[:40]}", depth + 1, above)
    else:
        for at, item in enumerate(value):
            _check(item, f"{where}[{at}]", depth + 1, above)
    above.discard(id(value))


def _check_integer(value: int, where: str) -> None:
    if value.bit_length() > _MAX_BITS:
        raise InvalidMessageError(f"integer over {MAX_DIGITS} digits at {where}")
    if not -(2**63) <= value < 2**64:
        raise InvalidMessageError(f"integer outside 64 bits at {where}: send it as text")


def check_text(value: str, where: str) -> None:
    """Refuse text that UTF-8, or a database, cannot hold.

    Raises:
        InvalidMessageError: It holds a lone surrogate or U+0000.
    """
    # No loop over characters: a context window is a quarter of a megabyte of text at every step.
    at = value.find("\x00")
    if at >= 0:
        raise InvalidMessageError(f"control character U+0000 at {at} in {where}")
    try:
        if not value.isascii():
            value.encode()
    except UnicodeEncodeError as error:
        raise InvalidMessageError(f"lone surrogate at {error.start} in {where}") from None


def clean(text: str) -> str:
    """The text as every store can hold it: U+0000 and lone surrogates become U+FFFD."""
    try:
        check_text(text, "text")
    except InvalidMessageError:
        return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def dumps(value: object, default: Callable[[Any], Any] | None = None, *, sort_keys: bool = False) -> bytes:
    """The value as JSON bytes; ``default`` turns what orjson does not know into something it does."""
    written = orjson.dumps(value, default, orjson.OPT_SORT_KEYS if sort_keys else None)
    # orjson 3.13 keeps its whole buffer behind what it wrote, 4 KB for 23 bytes and 60 KB for 5,000: a copy
    # has just the bytes.
    return bytes(memoryview(written))


def canonical(value: object) -> bytes:
    """The value as JSON bytes; the same value always gives the same bytes."""
    return dumps(value, sort_keys=True)


def _checked(value: object) -> object:
    check_json(value)
    return value


CheckedObject = Annotated[JsonObject, BeforeValidator(_checked)]
"""A JSON object in a model, checked before pydantic walks it."""

CheckedValue = Annotated[JsonValue, BeforeValidator(_checked)]
"""Any JSON value in a model, checked before pydantic walks it."""
