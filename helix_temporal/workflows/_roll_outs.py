"""Calls of tools and hooks that a worker has not registered: tried again until one has, for a bounded time.

While a new version is rolled out, workers of both versions serve one task queue.  An activity that a
worker does not know fails with the SDK's `NotFoundError`; that has run nothing, and must not use up the
attempts of a tool.
"""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from datetime import timedelta
from typing import Final, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from helix_temporal.errors import NotServedError
from helix_temporal.models.sessions import FailingCall
from helix_temporal.workflows._clock import now_ms

R = TypeVar("R")

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 5.0


elsewhere: Final[ContextVar[bool]] = ContextVar("helixelsewhere", default=False)
"""The activity that is scheduled now must not run at the worker that has this workflow in its cache."""


class RollOuts:
    """Remembers which activities are waited for, so that the session's status can name them."""

    def __init__(self) -> None:
        self._missing: dict[int, FailingCall] = {}
        self._made = 0

    @property
    def failing(self) -> tuple[FailingCall, ...]:
        """The calls that wait for a worker that has their activity."""
        return tuple(self._missing.values())

    async def until_served(self, call: Callable[[], Awaitable[R]], what: str, seconds: float) -> R:
        """The result of an activity, once a worker has it.

        Args:
            call: Schedules the activity.
            what: Names it for people.
            seconds: How long other workers are tried.

        Raises:
            NotServedError: None had it in that time.
        """
        since, pause, rounds, number = now_ms(), _FIRST_PAUSE, 0, self._made
        self._made += 1
        try:
            while True:
                try:
                    return await call()
                except ActivityError as error:
                    if not is_not_registered(error):
                        raise
                    rounds += 1
                    if now_ms() - since >= 1000 * seconds:
                        raise _not_served(what, error, seconds) from error
                    self._missing[number] = FailingCall(
                        activity=error.activity_type,
                        attempt=rounds + 1,
                        error=f"{NotServedError.__name__}: {_not_served(what, error, seconds)}",
                        worker=error.identity,
                        since=since,
                    )
                await workflow.sleep(timedelta(seconds=pause))
                pause = min(2 * pause, _LONGEST_PAUSE)
                elsewhere.set(True)
        finally:
            elsewhere.set(False)
            self._missing.pop(number, None)


def is_not_registered(error: ActivityError) -> bool:
    """Whether the worker that was asked has no activity of that name."""
    cause = error.cause
    named = isinstance(cause, ApplicationError) and cause.type == "NotFoundError"
    return named and "is not registered on this worker" in str(cause)


def _not_served(what: str, error: ActivityError, seconds: float) -> NotServedError:
    return NotServedError(
        f"{what} is not known to the worker that was asked ({error.identity}); "
        f"other workers are asked for {seconds:g} s"
    )
