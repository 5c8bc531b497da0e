"""Errors on their way out of activities: typed, and permanent ones not retried."""

import functools
import inspect
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, ParamSpec, TypeVar, get_type_hints

from pydantic import ValidationError
from temporalio import activity
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from helix_temporal.activities._context import attempt
from helix_temporal.errors import (
    ConflictError,
    HelixError,
    InvalidRequestError,
    NotServedError,
    SessionNotFoundError,
    StoreUnavailableError,
)

P = ParamSpec("P")
R = TypeVar("R")

_LONGEST_PAUSE: Final = 5.0
"""Seconds between attempts while workers lack what is asked for."""


def application_error(
    error: HelixError, number: int | None = None, waited: float | None = None
) -> ApplicationError:
    """The error as Temporal carries it: its class name as type, its facts as details.

    Whoever says when to come again (``retry_after_ms``) is asked again then, not sooner.

    Args:
        error: What was raised.
        number: Of the attempt that raised it; None for that of the activity.
        waited: Seconds since the first attempt was asked for; None for those of the activity.
    """
    number = attempt() if number is None else number
    expected = isinstance(error, ConflictError)
    return ApplicationError(
        str(error),
        error.facts,
        type=type(error).__name__,
        non_retryable=_is_permanent(error, number, waited),
        next_retry_delay=_retry_delay(error, number),
        category=ApplicationErrorCategory.BENIGN if expected else ApplicationErrorCategory.UNSPECIFIED,
    )


def _is_permanent(error: HelixError, number: int, waited: float | None) -> bool:
    """Whether no attempt follows: ``retry_for_ms`` and ``attempts`` bound errors that may pass."""
    seconds, attempts = error.facts.get("retry_for_ms"), error.facts.get("attempts")
    if not error.retryable or (isinstance(attempts, int) and number >= attempts):
        return True
    if waited is None and activity.in_activity():
        waited = (datetime.now(UTC) - activity.info().scheduled_time).total_seconds()
    return isinstance(seconds, int) and waited is not None and waited * 1000 >= seconds


def _retry_delay(error: HelixError, number: int) -> timedelta | None:
    """When the next attempt is made, if not as the retry policy has it."""
    after = error.facts.get("retry_after_ms")
    if isinstance(after, int) and after > 0:
        return timedelta(milliseconds=after)
    if isinstance(error, NotServedError):
        # Another worker may have it: ask soon, whatever pauses failing stores get.
        return timedelta(seconds=min(0.1 * 1.5 ** min(number, 20), _LONGEST_PAUSE))
    return None


def typed(function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """Let typed errors leave an activity as what they are on the wire, those of its input among them.

    The SDK makes a retryable error without a type of an input that it cannot decode, which would then
    be tried for ever; so the input arrives raw and is decoded here.
    """
    hints = get_type_hints(function)
    names = [name for name in inspect.signature(function).parameters if name != "self"]

    @functools.wraps(function)
    async def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            decoded: Any = [_decoded(arg, hints[names[-1]]) for arg in args]
            return await function(*decoded, **kwargs)
        except HelixError as error:
            # The cause would carry its traceback, and with it whatever a driver put into it.
            raise application_error(error) from None
        except ValidationError as error:
            fields = ", ".join(".".join(str(part) for part in each["loc"]) for each in error.errors())
            raise application_error(InvalidRequestError(f"{error.title}: wrong fields {fields}")) from None

    wrapper.__annotations__ = {**hints, **dict.fromkeys(names, RawValue)}
    return wrapper


def lost_state_is_passing(function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """For activities of a session that runs: a state that its store has lost is no permanent failure.

    The next attempt makes it again from the thread's slice.
    """

    @functools.wraps(function)
    async def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await function(*args, **kwargs)
        except SessionNotFoundError as error:
            raise StoreUnavailableError(
                "the session's state was lost, or deleted, while it was used; the next attempt makes it again"
            ) from error

    return wrapper


def _decoded(arg: object, hint: Any) -> object:
    """What the input says; anything but a raw one is passed on."""
    return activity.payload_converter().from_payload(arg.payload, hint) if isinstance(arg, RawValue) else arg
