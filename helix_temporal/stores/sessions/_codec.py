"""Pure: models to bytes and back, and the digest that tells whether two requests are the same."""

import hashlib
from functools import lru_cache
from typing import Any, Final, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from helix_temporal.errors import (
    HelixError,
    StoreCorruptError,
    TooLargeError,
)
from helix_temporal.models._json import canonical

M = TypeVar("M", bound=BaseModel)

MAX_BODY: Final = 16 * 1024 * 1024
"""Bytes of a state, and of any record of a session, as JSON."""


def encode(model: BaseModel, what: str) -> bytes:
    """The model as JSON.

    Raises:
        TooLargeError: It exceeds 16 MiB.
    """
    body = model.model_dump_json(by_alias=True).encode()
    if len(body) > MAX_BODY:
        raise TooLargeError(f"{what}: {len(body)} > {MAX_BODY} bytes")
    return body


def decode(kind: type[M], body: bytes, what: str) -> M:
    """Inverse of `encode`.

    Raises:
        StoreCorruptError: The bytes are no such model.
    """
    try:
        return kind.model_validate_json(body)
    except (ValidationError, HelixError) as error:
        raise StoreCorruptError(f"{what}: the stored bytes are not a {kind.__name__}") from error


@lru_cache(256)
def adapter(kind: Any) -> TypeAdapter[Any]:
    """For answers that are kept with their operation."""
    return TypeAdapter(kind)


def digest(*parts: object) -> str:
    """The same for the same request, whichever process makes it."""
    return hashlib.sha256(canonical([_plain(part) for part in parts])).hexdigest()


def _plain(part: object) -> object:
    if isinstance(part, BaseModel):
        return part.model_dump(mode="json")
    if isinstance(part, bytes):
        return hashlib.sha256(part).hexdigest()
    if isinstance(part, tuple | list | set | frozenset):
        plain = [_plain(each) for each in part]
        return plain if isinstance(part, tuple | list) else sorted(map(str, plain))
    if isinstance(part, dict):
        return {key: _plain(value) for key, value in part.items()}
    return part
