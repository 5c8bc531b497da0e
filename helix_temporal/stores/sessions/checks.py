"""Pure: arguments are looked at before anything is read or written."""

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from helix_temporal.errors import InvalidMessageError, InvalidRequestError, TooLargeError
from helix_temporal.models.base import check_text
from helix_temporal.models.limits import MAX_ERROR_TEXT
from helix_temporal.models.states import SessionStatus
from helix_temporal.models.store_calls import MAX_LIMIT, Unset
from helix_temporal.stores.protocols.sessions import AnyVersion

M = TypeVar("M", bound=BaseModel)


def revalidate_model(model: M, kind: type[M]) -> M:
    """The model validated anew: a copy with other values in some fields was never looked at.

    Raises:
        InvalidRequestError: A field has a value that it cannot have.
        InvalidMessageError: It holds text or numbers that not every store can keep.
    """
    if not isinstance(model, kind):
        raise InvalidRequestError(f"{kind.__name__} expected, got {type(model).__name__}")
    try:
        return type(model).model_validate(model.model_dump(by_alias=True, warnings=False))
    except ValidationError as error:
        where = ", ".join(sorted({".".join(map(str, each["loc"][:3])) for each in error.errors()}))
        raise InvalidRequestError(f"{kind.__name__}: unacceptable value in {where[:200]}") from None
    except (PydanticSerializationError, RecursionError, ValueError):
        raise InvalidMessageError(f"{kind.__name__}: not JSON, or nested too deep") from None


def checked_status(status: Any) -> SessionStatus:
    """One of the statuses, or a word for one.

    Raises:
        InvalidRequestError: It is none.
    """
    try:
        return SessionStatus(status)
    except ValueError:
        names = ", ".join(SessionStatus)
        raise InvalidRequestError(f"status: one of {names} expected") from None


def checked_version(version: Any) -> Any:
    """An expected version.

    Raises:
        InvalidRequestError: It is no integer of 1 or more.
    """
    if version is None or isinstance(version, AnyVersion):
        return version
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version < 2**63:
        raise InvalidRequestError("expected_version: an integer of 1 or more expected")
    return version


def checked_time(at: Any, what: str = "expires_at") -> int | Unset | None:
    """A time in ms.

    Raises:
        InvalidRequestError: It is no integer of 0 or more.
    """
    if at is None or isinstance(at, Unset):
        return at
    if isinstance(at, bool) or not isinstance(at, int) or not 0 <= at < 2**63:
        raise InvalidRequestError(f"{what}: milliseconds since 1970 as an integer expected")
    return at


def checked_reason(reason: str | None) -> str | None:
    """Text for a person.

    Raises:
        InvalidMessageError: No store can keep it.
        TooLargeError: It exceeds 8 KiB.
    """
    return None if reason is None else checked_text(reason, "reason", MAX_ERROR_TEXT)


def checked_text(text: object, what: str, limit: int) -> str:
    """Text that every store can keep.

    Raises:
        InvalidRequestError: It is no text.
        InvalidMessageError: It holds NUL or a lone surrogate.
        TooLargeError: It has more than ``limit`` bytes.
    """
    if not isinstance(text, str):
        raise InvalidRequestError(f"{what}: text expected, got {type(text).__name__}")
    check_text(text, what)
    size = len(text.encode())
    if size > limit:
        raise TooLargeError(f"{what}: {size} > {limit} bytes")
    return text


def checked_limit(limit: object) -> int:
    """The size of a page.

    Raises:
        InvalidRequestError: It is not 1-200.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_LIMIT:
        raise InvalidRequestError(f"limit: 1 to {MAX_LIMIT} expected")
    return limit


def checked_count(count: object, what: str) -> int:
    """A number of things.

    Raises:
        InvalidRequestError: It is no integer of 0 or more.
    """
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 2**63:
        raise InvalidRequestError(f"{what}: an integer of 0 or more expected")
    return count
