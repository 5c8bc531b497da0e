"""The bases of all wire models: JSON as we accept it, exact amounts, checked texts."""

import difflib
import json
import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from decimal import Decimal
from typing import Annotated, Any, Final, Self

import orjson
from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    model_serializer,
)

from helix_temporal.errors import InvalidMessageError, InvalidRequestError


class WireModel(BaseModel):
    """Frozen; unknown fields of a newer version are ignored, missing required ones refused."""

    model_config = ConfigDict(frozen=True, extra="ignore")


def describe_unknown(names: Iterable[str], known: Collection[str], kind: str) -> str:
    """That there are no such names, and for each the nearest that there is, or else all."""

    def describe(name: str) -> str:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
        rest = f": {near[0]} is meant" if near else f"; it has {', '.join(known)}"
        return f"{name} is no {kind}{rest}"

    return "; ".join(map(describe, names))


class KnownFields(BaseModel):
    """A model that programs make: a name that is no field of it is refused, not ignored.

    Raises:
        InvalidRequestError: There is no such field; the message names the nearest.
    """

    def __new__(cls, *_: Any, **fields: Any) -> Self:
        """Refuse unknown fields of a program; what is read from the wire may have some."""
        # pydantic makes what it reads without arguments: unknown fields of a newer version are ignored there.
        aliases = [field.validation_alias for field in cls.model_fields.values()]
        choices = [each.choices for each in aliases if isinstance(each, AliasChoices)]
        names = set(cls.model_fields).union(*choices)
        if unknown := [name for name in fields if name not in names]:
            raise InvalidRequestError(describe_unknown(unknown, cls.model_fields, f"field of {cls.__name__}"))
        return super().__new__(cls)


class Changes(KnownFields):
    """A model whose unset fields mean "as it was": it is written without them, whoever writes it."""

    def changes(self) -> dict[str, Any]:
        """The fields that were named."""
        return {name: getattr(self, name) for name in self.model_fields_set}

    @model_serializer(mode="wrap")
    def _write_changes(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # The plugin's converter leaves out all that is unset; those of others write defaults.
        written: dict[str, Any] = write(self)
        return {name: value for name, value in written.items() if name in self.model_fields_set}


MAX_DEPTH = 64
MAX_DIGITS = 4300
"""Python's own limit for converting integers from and to text."""
_MAX_BITS = 14_285
"""What an integer of so many digits has at most."""

JsonObject = dict[str, JsonValue]


def copy_json(value: object, where: str = "$") -> Any:
    """A copy of the value as JSON has it: tuples are lists.

    Raises:
        InvalidMessageError: See `check_json`.
    """
    check_json(value, where)
    return orjson.loads(dump_json(value))


def parse_json_text(text: str) -> JsonValue:
    """The object or list that a text holds; None for any other text, and for what `check_json` refuses.

    That can be laid out, checked and written by nothing here.
    """
    if not text.startswith(("{", "[")):
        return None
    try:
        found: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if is_accepted_json(found) else None


def is_accepted_json(value: object) -> bool:
    """Whether `check_json` accepts a value."""
    try:
        check_json(value)
    except InvalidMessageError:
        return False
    return True


def is_same_json(one: object, other: object) -> bool:
    """Whether two values are one JSON value: 1, 1.0 and true are equal in Python, and three values there."""
    return one == other and canonical_json(one) == canonical_json(other)


def wall_clock_ms() -> int:
    """Milliseconds since 1970 by this machine's clock."""
    return int(time.time() * 1000)


def only_set(**fields: Any) -> dict[str, Any]:
    """The fields that are not None, so that histories and stores hold only what was set."""
    return {name: value for name, value in fields.items() if value is not None}


def only_truthy(**fields: Any) -> dict[str, Any]:
    """As `only_set`, and without fields that are empty, 0 or false."""
    return {name: value for name, value in fields.items() if value}


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
        _check_value(value, where, 0, set())


def _check_value(value: object, where: str, depth: int, above: set[int]) -> None:
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
            _check_value(item, f"{where}.{key[:40]}", depth + 1, above)
    else:
        for at, item in enumerate(value):
            _check_value(item, f"{where}[{at}]", depth + 1, above)
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


def storable_text(text: str) -> str:
    """The text as every store can hold it: U+0000 and lone surrogates become U+FFFD."""
    try:
        check_text(text, "text")
    except InvalidMessageError:
        return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def dump_json(
    value: object, default: Callable[[Any], Any] | None = None, *, sort_keys: bool = False
) -> bytes:
    """The value as JSON bytes; ``default`` turns what orjson does not know into something it does."""
    written = orjson.dumps(value, default, orjson.OPT_SORT_KEYS if sort_keys else None)
    # orjson 3.13 keeps its whole buffer behind what it wrote, 4 KB for 23 bytes and 60 KB for 5,000: a copy
    # has just the bytes.
    return bytes(memoryview(written))


def canonical_json(value: object) -> bytes:
    """The value as JSON bytes; the same value always gives the same bytes."""
    return dump_json(value, sort_keys=True)


def json_size(value: object) -> int:
    """Bytes that a value takes at most in a payload: a character that JSON escapes takes up to twelve."""
    return len(json.dumps(value))


def _validate_json(value: object) -> object:
    check_json(value)
    return value


CheckedObject = Annotated[JsonObject, BeforeValidator(_validate_json)]
"""A JSON object in a model, checked before pydantic walks it."""

CheckedValue = Annotated[JsonValue, BeforeValidator(_validate_json)]
"""Any JSON value in a model, checked before pydantic walks it."""


MAX_PLACES: Final = 18
"""Digits after the point, and before it."""

_DECIMAL: Final = re.compile(r"[+-]?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?")
_MAX_NAME: Final = 256
_MAX_SHORT_TEXT: Final = 8192


def _wrong_type_error(info: ValidationInfo, expected: str, value: object) -> InvalidRequestError:
    # The value itself may be anything, a secret in the wrong place among it.
    return InvalidRequestError(f"{info.field_name}: {expected} expected, got {type(value).__name__}")


def _validate_integer(value: object, info: ValidationInfo, bound: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong_type_error(info, "non-negative int", value)
    if not 0 <= value < bound:
        raise InvalidRequestError(f"{info.field_name}: 0 to {bound - 1} expected, got one outside")
    return value


def _validate_count(value: object, info: ValidationInfo) -> int:
    return _validate_integer(value, info, 2**63)


def _validate_small_count(value: object, info: ValidationInfo) -> int:
    return _validate_integer(value, info, 2**31)


def _validate_milliseconds(value: object, info: ValidationInfo) -> int:
    return _validate_integer(value, info, 2**53)


def _validate_decimal(value: object, info: ValidationInfo) -> Decimal:
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        value = Decimal(value)
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise _wrong_type_error(info, "int, Decimal or a decimal number as text", value)
    found = Decimal(value)
    if not found.is_finite() or (found and found.adjusted() >= MAX_PLACES):
        raise InvalidRequestError(f"{info.field_name}: finite, below 10^{MAX_PLACES} expected")
    exponent = found.as_tuple().exponent
    if not isinstance(exponent, int) or exponent < -MAX_PLACES:
        raise InvalidRequestError(f"{info.field_name}: at most {MAX_PLACES} digits after the point expected")
    # Without an exponent: 1E+2 and 100 are written alike.
    return Decimal(format(found, "f"))


def _validate_cost(value: object, info: ValidationInfo) -> Decimal:
    found = _validate_decimal(value, info)
    if found < 0:
        raise InvalidRequestError(f"{info.field_name}: an amount of 0 or more expected, got a negative one")
    return found


def _validate_amount(value: object, info: ValidationInfo) -> int | Decimal:
    if isinstance(value, int) and not isinstance(value, bool):
        if not -(2**63) <= value < 2**63:
            raise InvalidRequestError(f"{info.field_name}: an int of 64 bits or a Decimal expected")
        return value
    return _validate_decimal(value, info)


def _checked_text(value: object, info: ValidationInfo, most: int, least: int = 0) -> str:
    if not isinstance(value, str):
        raise _wrong_type_error(info, "text", value)
    if not least <= len(value) <= most:
        raise InvalidRequestError(
            f"{info.field_name}: {least} to {most} characters expected, got {len(value)}"
        )
    try:
        check_text(value, str(info.field_name))
    except InvalidMessageError as error:
        raise InvalidRequestError(str(error)) from None
    return value


def _validate_name(value: object, info: ValidationInfo) -> str:
    return _checked_text(value, info, _MAX_NAME, 1)


def _validate_label(value: object, info: ValidationInfo) -> str:
    return _checked_text(value, info, _MAX_NAME)


def _validate_text(value: object, info: ValidationInfo) -> str:
    return _checked_text(value, info, _MAX_SHORT_TEXT)


Count = Annotated[int, BeforeValidator(_validate_count)]
"""0 to 2^63 - 1."""

SmallCount = Annotated[int, BeforeValidator(_validate_small_count)]
"""0 to 2^31 - 1."""

Milliseconds = Annotated[int, BeforeValidator(_validate_milliseconds)]
"""0 to 2^53 - 1."""

Cost = Annotated[Decimal, BeforeValidator(_validate_cost)]
"""Money: 0 or more, at most 18 digits before the point and 18 after it; text in JSON."""

Amount = Annotated[int | Decimal, BeforeValidator(_validate_amount)]
"""An int of 64 bits, or a decimal number of at most 18 digits before the point and 18 after it."""

Name = Annotated[str, BeforeValidator(_validate_name)]
"""1 to 256 characters without NUL and lone surrogates."""

Label = Annotated[str, BeforeValidator(_validate_label)]
"""A `Name`, or nothing."""

Text = Annotated[str, BeforeValidator(_validate_text)]
"""Up to 8,192 characters without NUL and lone surrogates."""


def _parse_sum(value: object) -> object:
    return Decimal(value) if isinstance(value, str) and _DECIMAL.fullmatch(value) else value


Sum = Annotated[int | Decimal, BeforeValidator(_parse_sum)]
"""A sum of amounts: an int as long as all of them are."""

Whole = Annotated[int, Field(strict=True, ge=0)]
"""A sum of counts: without an upper bound."""
