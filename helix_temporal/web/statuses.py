"""The HTTP status of an error: one table for what serves sessions and what shows them."""

from typing import Final

from pydantic import ValidationError

from helix_temporal.errors import (
    ConflictError,
    ForeignDeploymentError,
    InvalidCursorError,
    InvalidIdError,
    InvalidMessageError,
    InvalidRequestError,
    NotFoundError,
    NoWorkerError,
    SessionExpiredError,
    SessionTerminatedError,
    StoreUnavailableError,
    TooLargeError,
)

BAD_REQUEST_ERRORS: Final = (InvalidIdError, InvalidRequestError, InvalidMessageError, InvalidCursorError)
"""What a request asks for cannot be; their messages say what of it."""

_STATUS: Final = (
    (TooLargeError, 413),
    (BAD_REQUEST_ERRORS, 400),
    (NotFoundError, 404),
    ((ConflictError, ForeignDeploymentError), 409),
    (SessionExpiredError, 410),
    ((StoreUnavailableError, NoWorkerError, SessionTerminatedError, TimeoutError), 503),
)


def find_status(error: Exception) -> int:
    """The status that tells a client what an error means; 500 for those that nobody expects."""
    return next((code for kinds, code in _STATUS if isinstance(error, kinds)), 500)


def describe_fields(error: ValidationError) -> str:
    """What is wrong with a request's fields, without what was given."""
    return ", ".join(
        f"{'.'.join(map(str, each['loc'])) or 'body'} ({each['msg']})"
        for each in error.errors(include_input=False, include_url=False)
    )
