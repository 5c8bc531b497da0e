"""Numbers and names that are stored and added up: whole numbers, exact decimals, checked text.

What is out of range is `InvalidRequestError` and names its field.  A float is refused everywhere: sums of
floats depend on their order, and money is never one.
"""

import re
from decimal import Decimal
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, ValidationInfo

from helix_temporal.errors import InvalidMessageError, InvalidRequestError
from helix_temporal.models._json import check_text

MAX_PLACES: Final = 18
"""Digits after the point, and before it."""

_DECIMAL: Final = re.compile(r"[+-]?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?")
_MAX_NAME: Final = 256
_MAX_TEXT: Final = 8192


def _wrong(info: ValidationInfo, expected: str, value: object) -> InvalidRequestError:
    # The value itself may be anything, a secret in the wrong place among it.
    return InvalidRequestError(f"{info.field_name}: {expected} expected, got {type(value).__name__}")


def _whole(value: object, info: ValidationInfo, bound: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(info, "non-negative int", value)
    if not 0 <= value < bound:
        raise InvalidRequestError(f"{info.field_name}: 0 to {bound - 1} expected, got one outside")
    return value


def _count(value: object, info: ValidationInfo) -> int:
    return _whole(value, info, 2**63)


def _small(value: object, info: ValidationInfo) -> int:
    return _whole(value, info, 2**31)


def _milliseconds(value: object, info: ValidationInfo) -> int:
    return _whole(value, info, 2**53)


def _decimal(value: object, info: ValidationInfo) -> Decimal:
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        value = Decimal(value)
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise _wrong(info, "int, Decimal or a decimal number as text", value)
    found = Decimal(value)
    if not found.is_finite() or (found and found.adjusted() >= MAX_PLACES):
        raise InvalidRequestError(f"{info.field_name}: finite, below 10^{MAX_PLACES} expected")
    exponent = found.as_tuple().exponent
    if not isinstance(exponent, int) or exponent < -MAX_PLACES:
        raise InvalidRequestError(f"{info.field_name}: at most {MAX_PLACES} digits after the point expected")
    # Without an exponent: 1E+2 and 100 are written alike.
    return Decimal(format(found, "f"))


def _cost(value: object, info: ValidationInfo) -> Decimal:
    found = _decimal(value, info)
    if found < 0:
        raise InvalidRequestError(f"{info.field_name}: an amount of 0 or more expected, got a negative one")
    return found


def _amount(value: object, info: ValidationInfo) -> int | Decimal:
    if isinstance(value, int) and not isinstance(value, bool):
        if not -(2**63) <= value < 2**63:
            raise InvalidRequestError(f"{info.field_name}: an int of 64 bits or a Decimal expected")
        return value
    return _decimal(value, info)


def _checked_text(value: object, info: ValidationInfo, most: int, least: int = 0) -> str:
    if not isinstance(value, str):
        raise _wrong(info, "text", value)
    if not least <= len(value) <= most:
        raise InvalidRequestError(
            f"{info.field_name}: {least} to {most} characters expected, got {len(value)}"
        )
    try:
        check_text(value, str(info.field_name))
    except InvalidMessageError as error:
        raise InvalidRequestError(str(error)) from None
    return value


def _name(value: object, info: ValidationInfo) -> str:
    return _checked_text(value, info, _MAX_NAME, 1)


def _label(value: object, info: ValidationInfo) -> str:
    return _checked_text(value, info, _MAX_NAME)


def _text(value: object, info: ValidationInfo) -> str:
    return _checked_text(value, info, _MAX_TEXT)


Count = Annotated[int, BeforeValidator(_count)]
"""0 to 2^63 - 1."""

SmallCount = Annotated[int, BeforeValidator(_small)]
"""0 to 2^31 - 1."""

Milliseconds = Annotated[int, BeforeValidator(_milliseconds)]
"""0 to 2^53 - 1."""

Cost = Annotated[Decimal, BeforeValidator(_cost)]
"""Money: 0 or more, at most 18 digits before the point and 18 after it; text in JSON."""

Amount = Annotated[int | Decimal, BeforeValidator(_amount)]
"""An int of 64 bits, or a decimal number of at most 18 digits before the point and 18 after it."""

Name = Annotated[str, BeforeValidator(_name)]
"""1 to 256 characters without NUL and lone surrogates."""

Label = Annotated[str, BeforeValidator(_label)]
"""A `Name`, or nothing."""

Text = Annotated[str, BeforeValidator(_text)]
"""Up to 8,192 characters without NUL and lone surrogates."""


def _sum(value: object) -> object:
    return Decimal(value) if isinstance(value, str) and _DECIMAL.fullmatch(value) else value


Sum = Annotated[int | Decimal, BeforeValidator(_sum)]
"""A sum of amounts: an int as long as all of them are."""

Whole = Annotated[int, Field(strict=True, ge=0)]
"""A sum of counts: without an upper bound."""
