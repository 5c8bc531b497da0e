"""Errors on their way out of activities: typed, and permanent ones not retried."""

import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from pydantic import ValidationError
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from helix_temporal.errors import ConflictError, HelixError, InvalidRequestError

P = ParamSpec("P")
R = TypeVar("R")


def application_error(error: HelixError) -> ApplicationError:
    """The error as Temporal carries it: its class name as type, its facts as details."""
    expected = isinstance(error, ConflictError)
    return ApplicationError(
        str(error),
        error.facts,
        type=type(error).__name__,
        non_retryable=not error.retryable,
        category=ApplicationErrorCategory.BENIGN if expected else ApplicationErrorCategory.UNSPECIFIED,
    )


def typed(function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """Let typed errors leave an activity as what they are on the wire."""

    @functools.wraps(function)
    async def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await function(*args, **kwargs)
        except HelixError as error:
            # The cause would carry its traceback, and with it whatever a driver put into it.
            raise application_error(error) from None
        except ValidationError as error:
            fields = ", ".join(".".join(str(part) for part in each["loc"]) for each in error.errors())
            raise application_error(InvalidRequestError(f"{error.title}: wrong fields {fields}")) from None

    return wrapper
