"""How a failure is told to people and models: its type and text, cut, without Temporal's wrapping."""

import asyncio
from typing import Final

from temporalio.exceptions import ActivityError, ApplicationError, FailureError, ServerError
from temporalio.exceptions import TimeoutError as TemporalTimeoutError

from helix_temporal.models.base import storable_text

_TOO_LARGE: Final = "exceeds size limit"
"""What a server says in place of a failure that it has cut: some 4 KB are kept, with its frames."""
_SHOWN: Final = 500
"""Characters of an exception's text that leave the process it was raised in."""


def describe_failure(error: BaseException, *, hides: bool = False) -> str:
    """Type and text, as ``type: text``; the type alone if there is no text, or it is one that ``hides``."""
    error = _unwrap(error)
    kind = (error.type if isinstance(error, ApplicationError) else None) or type(error).__name__
    if isinstance(error, asyncio.CancelledError):
        kind = f"raised {kind}"  # by itself: nobody cancelled the call
    text = "" if hides else text_of_failure(error)
    return f"{kind}: {text}" if text else kind


def tell_tool_failure(text: str) -> str:
    """What a model is told in place of the result of a tool that failed for good."""
    return f"The tool failed: {text}"


def text_of_failure(error: BaseException) -> str:
    """The text alone, as every store can hold it."""
    text = error.message if isinstance(error, FailureError) else str(error)
    return storable_text(text).strip()[:_SHOWN]


def _unwrap(error: BaseException) -> BaseException:
    if isinstance(error, ActivityError) and error.cause is not None:
        error = error.cause
    if isinstance(error, TemporalTimeoutError) and isinstance(error.cause, ApplicationError | ServerError):
        error = error.cause  # time was up: what every attempt had failed by
    if isinstance(error, ServerError) and _TOO_LARGE in error.message and error.cause is not None:
        return error.cause  # a server puts this in front of a failure that it has cut
    return error
