"""What an application's own code raises in an activity: models, tools, hooks, instructions, transforms.

A bug is the same at every attempt, while what networks and providers raise may pass.  The exception's own
text is cut: it may hold what the code was given, and histories are read by more people than logs are.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from temporalio import activity
from temporalio.exceptions import ApplicationError

from helix_temporal.errors import ApplicationCodeError, HelixError
from helix_temporal.models._json import clean

ATTEMPTS: Final = 3
"""So often code with a bug is tried."""
MAX_TEXT: Final = 500
"""Characters of an exception's text that leave the worker."""

CODE_ERRORS: Final = (Exception, SystemExit, KeyboardInterrupt, asyncio.CancelledError)
"""What such code may raise by itself; the last one unless `is_cancellation` says otherwise."""

_BUGS: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    KeyboardInterrupt,
    LookupError,
    NameError,
    NotImplementedError,
    RecursionError,
    SyntaxError,
    SystemExit,
    TypeError,
    ValueError,
    asyncio.CancelledError,
)
_PASSING: Final = (OSError, UnicodeError, json.JSONDecodeError)
"""`ValueError` all the same, but of what came over a network."""


def is_bug(error: BaseException) -> bool:
    """Whether the same call would fail the same way again; what nobody knows may pass."""
    return isinstance(error, _BUGS) and not isinstance(error, _PASSING)


def is_cancellation(error: BaseException) -> bool:
    """Whether the activity, or the task that runs the code, was cancelled; the exception passes then.

    Code that waits for a task which somebody else cancelled raises the same exception.
    """
    if not isinstance(error, asyncio.CancelledError):
        return False
    if activity.in_activity() and activity.is_cancelled():
        return True
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def told(error: BaseException, *, hides: bool = False) -> str:
    """Type and text of an exception, cut; the type alone if it ``hides`` the text."""
    kind = type(error).__name__
    if isinstance(error, ApplicationError):
        kind = error.type or kind
    if isinstance(error, asyncio.CancelledError):
        kind = f"raised {kind}"  # by itself: nobody cancelled the call
    text = "" if hides else _cut(error)
    return f"{kind}: {text}" if text else kind


def with_text(error: HelixError | ApplicationError, text: str) -> HelixError | ApplicationError:
    """The same error with another text; one of Temporal's keeps its type and when it is tried again.

    Its details go: they may hold what its text did.
    """
    if isinstance(error, HelixError):
        error.args = (text,)  # it stays itself: a subclass of the application's may be made of anything
        return error
    return ApplicationError(
        text,
        type=error.type,
        non_retryable=error.non_retryable,
        next_retry_delay=error.next_retry_delay,
        category=error.category,
    )


def _cut(error: BaseException) -> str:
    text = error.message if isinstance(error, ApplicationError) else str(error)
    return clean(text).strip()[:MAX_TEXT]


@contextmanager
def application_code(what: str) -> Iterator[None]:
    """Around a call of an application's own code in an activity; elsewhere its exceptions pass as they are.

    Args:
        what: Names the code for people: ``model of agent 'support'``.

    Raises:
        ApplicationCodeError: It has a bug; permanent at the third attempt.
        ApplicationError: It raised anything else, which is tried again; its type is the exception's name.
            One that it raised itself keeps its own type.
    """
    try:
        yield
    except (HelixError, ApplicationError) as error:
        if not activity.in_activity():
            raise
        raise with_text(error, _cut(error)) from None
    except CODE_ERRORS as error:
        if is_cancellation(error) or not activity.in_activity():
            raise
        activity.logger.warning("%s failed", what, exc_info=error)
        if is_bug(error):
            raise ApplicationCodeError(f"{what}: {told(error)}", attempts=ATTEMPTS) from None
        # Without the cause: it would carry its traceback, and with it whatever a library put into it.
        raise ApplicationError(f"{what}: {told(error)}", type=type(error).__name__) from None
