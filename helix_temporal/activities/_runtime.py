"""What all activities share: the execution they run in, their time limits, and errors on the way out."""

import asyncio
import contextlib
import functools
import hashlib
import inspect
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Final, Literal, ParamSpec, TypeVar, get_type_hints

from pydantic import ValidationError
from temporalio import activity
from temporalio.client import AsyncActivityCancelledError
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal._failures import describe_failure, text_of_failure
from helix_temporal.errors import (
    ApplicationCodeError,
    CheckpointNotFoundError,
    ConflictError,
    FencedError,
    HeadMovedError,
    HelixError,
    InvalidRequestError,
    NotServedError,
    SessionNotFoundError,
    StoreUnavailableError,
    ThreadNotFoundError,
)
from helix_temporal.models.base import only_set, wall_clock_ms
from helix_temporal.models.steps import ReopenHeads
from helix_temporal.models.store_calls import SessionCall
from helix_temporal.stores.protocols.threads import Progress, Reopen, no_progress
from helix_temporal.telemetry import metrics

_log = logging.getLogger(__name__)

MICROSECONDS: Final = 1_000_000
_NAMES_IN_BEAT: Final = 500
_LONGEST_LOOK: Final = timedelta(seconds=1)


def scheduled_epoch() -> int:
    """The epoch that an open takes: when it was scheduled, in µs, the same for all its attempts.

    Whatever is scheduled later has a higher one; also after a terminate or a reset.
    """
    return int(activity.info().scheduled_time.timestamp() * MICROSECONDS)


def scheduled_ms() -> int:
    """When the activity was scheduled, in ms since 1970, the same for all attempts; outside of one now."""
    return scheduled_epoch() // 1000 if activity.in_activity() else wall_clock_ms()


def default_owner() -> str:
    """Who opens when no session workflow says so: the workflow, or the standalone activity."""
    info = activity.info()
    return info.workflow_run_id or info.activity_id


def current_attempt() -> int:
    """Which attempt of its activity this is, from 1 on."""
    return activity.info().attempt if activity.in_activity() else 1


def find_most_attempts(otherwise: int) -> int | None:
    """So many attempts the activity gets, by its retry policy; None: without limit.

    ``otherwise`` where the SDK does not tell the policy, or this is no activity.
    """
    # The policy is in `Info` of newer SDKs alone.
    policy = getattr(activity.info(), "retry_policy", None) if activity.in_activity() else None
    return otherwise if policy is None else policy.maximum_attempts or None


def workflow_run() -> str:
    """A few letters that stand for the workflow run whose activity this is; empty outside of one."""
    run = activity.info().workflow_run_id if activity.in_activity() else None
    return hashlib.sha256(run.encode()).hexdigest()[:8] if run else ""


def executing_workflow() -> dict[str, Any]:
    """Fields ``workflow_id`` and ``workflow_run_id`` of the workflow whose activity this is, where known."""
    if not activity.in_activity():
        return {}
    info = activity.info()
    return only_set(workflow_id=info.workflow_id, workflow_run_id=info.workflow_run_id)


def operation_of(request: SessionCall) -> str:
    """The operation that a request is: the one it names, or this activity, the same for all its attempts."""
    if request.operation_id is not None:
        return request.operation_id
    info = activity.info()
    return f"{info.workflow_run_id or info.task_queue}/{info.activity_id}"


class _Beats:
    """A `Progress` whose state travels in heartbeats."""

    def __init__(self, details: Sequence[Any]) -> None:
        self._names: list[str] = list(details[3]) if len(details) > 3 else []
        self.finished = frozenset(self._names)
        self._last: tuple[str, int, int] | None = None

    def __call__(self, what: str, number: int, size: int, name: str = "") -> None:
        self._last = what, number, size
        if name and len(self._names) < _NAMES_IN_BEAT:
            self._names.append(name)

    def details(self) -> Sequence[Any]:
        """What was moved last, its number, its bytes, and the names that need not be moved again."""
        return (*self._last, self._names) if self._last else ()


async def is_current_attempt(seconds: float | None = None) -> bool:
    """Whether Temporal still waits for this attempt: that of a frozen worker may have timed out meanwhile.

    True where Temporal does not say otherwise within a second, and outside of an activity.  For attempts at
    their end: Temporal is asked by a heartbeat without details, which takes the place of those before.

    Args:
        seconds: For which the attempt has run; within its time limits Temporal is not asked.
    """
    if not activity.in_activity() or (seconds is not None and _is_within_limits(seconds)):
        return True
    try:
        client = activity.client()
    except RuntimeError:  # as in tests of an activity alone
        return True
    try:
        attempt = client.get_async_activity_handle(task_token=activity.info().task_token)
        await attempt.heartbeat(rpc_timeout=_LONGEST_LOOK)
    except AsyncActivityCancelledError:  # asked to end, and waited for
        return True
    except RPCError as error:
        return error.status != RPCStatusCode.NOT_FOUND
    return True


def _is_within_limits(seconds: float) -> bool:
    info = activity.info()
    limits = (info.heartbeat_timeout, info.start_to_close_timeout)
    return all(each is None or seconds < each.total_seconds() for each in limits)


@contextlib.asynccontextmanager
async def heartbeat_in_background(every: float, details: Callable[[], Sequence[Any]]) -> AsyncIterator[None]:
    """Heartbeat in the background with what the details are then: a beat without any would lose them.

    Args:
        every: Seconds between beats; at most a third of the activity's own time-out.
        details: What a beat carries.
    """
    loop = asyncio.get_running_loop()
    every = _beat_in_time(every)
    timer: asyncio.TimerHandle

    def beat() -> None:
        nonlocal timer
        activity.heartbeat(*details())
        timer = loop.call_later(every, beat)

    # Not at once: most activities end before the first beat, and each costs the server a transaction.
    timer = loop.call_later(every, beat)
    try:
        yield
    finally:
        timer.cancel()


def _beat_in_time(every: float) -> float:
    """The setting is for all activities; some have a shorter time-out, such as tools with their own."""
    timeout = activity.info().heartbeat_timeout
    return every if timeout is None else min(every, timeout.total_seconds() / 3)


@contextlib.asynccontextmanager
async def heartbeat_with_progress(every: float) -> AsyncIterator[Progress]:
    """Heartbeat in the background, carrying the progress that is reported.

    A lost worker is then noticed after the heartbeat time-out, a cancel arrives, and the next attempt
    knows what this one has finished.  Outside Temporal nobody listens.
    """
    if not activity.in_activity():
        yield no_progress
        return
    progress = _Beats(activity.info().heartbeat_details)
    async with heartbeat_in_background(every, progress.details):
        yield progress


P = ParamSpec("P")
R = TypeVar("R")

_ANSWERS: Final = (ConflictError, CheckpointNotFoundError, SessionNotFoundError, ThreadNotFoundError)
"""Answers to what somebody asked: a worker's log does not fill with them, nor do its counts of failures."""
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
        waited: Seconds for which it was tried; None for those in which attempts of the activity paused.
    """
    number = current_attempt() if number is None else number
    return ApplicationError(
        str(error),
        error.facts,
        type=type(error).__name__,
        non_retryable=_is_permanent(error, number, waited),
        next_retry_delay=_retry_delay(error, number),
        category=(
            ApplicationErrorCategory.BENIGN
            if isinstance(error, _ANSWERS)
            else ApplicationErrorCategory.UNSPECIFIED
        ),
    )


def _is_permanent(error: HelixError, number: int, waited: float | None) -> bool:
    """Whether no attempt follows: ``retry_for_ms`` and ``attempts`` bound errors that may pass."""
    seconds, attempts = error.facts.get("retry_for_ms"), error.facts.get("attempts")
    if not error.retryable or (isinstance(attempts, int) and number >= attempts):
        return True
    if not isinstance(seconds, int):
        return False
    # Not the time since it was scheduled: while no worker polled the queue, none was asked.
    tried = sum(map(_pause_elsewhere, range(1, number))) if waited is None else waited
    return tried * 1000 >= seconds


def _retry_delay(error: HelixError, number: int) -> timedelta | None:
    """When the next attempt is made, if not as the retry policy has it."""
    after = error.facts.get("retry_after_ms")
    if isinstance(after, int) and after > 0:
        return timedelta(milliseconds=after)
    if isinstance(error, NotServedError):
        # Another worker may have it: ask soon, whatever pauses failing stores get.
        return timedelta(seconds=_pause_elsewhere(number))
    return None


def _pause_elsewhere(number: int) -> float:
    """Seconds between an attempt that a worker could not serve and the next one."""
    return min(0.1 * 1.5 ** min(number, 20), _LONGEST_PAUSE)


def raise_application_errors(function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """Let typed errors leave an activity as what they are on the wire, those of its input among them.

    The SDK makes a retryable error without a type of an input that it cannot decode, which would then
    be tried for ever; so the input arrives raw and is decoded here.
    """
    hints = get_type_hints(function)
    names = [name for name in inspect.signature(function).parameters if name != "self"]

    @functools.wraps(function)
    async def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            decoded: Any = [_decode_argument(arg, hints[names[-1]]) for arg in args]
            return await function(*decoded, **kwargs)
        except HelixError as error:
            _count_error(error)
            # The cause would carry its traceback, and with it whatever a driver put into it.
            raise application_error(error) from None
        except ApplicationError as error:
            # Without our own frames: a server cuts a failure of more than some 4 KB, and hides what it says.
            raise error.with_traceback(None) from None
        except ValidationError as error:
            fields = ", ".join(".".join(str(part) for part in each["loc"]) for each in error.errors())
            raise application_error(InvalidRequestError(f"{error.title}: wrong fields {fields}")) from None

    wrapper.__annotations__ = {**hints, **dict.fromkeys(names, RawValue)}
    return wrapper


_COUNTED: Final = (
    (FencedError, metrics.FENCED),
    (HeadMovedError, metrics.HEAD_MOVED),
    (StoreUnavailableError, metrics.STORE_UNAVAILABLE),
)


def _count_error(error: HelixError) -> None:
    """Count what an operator is to know of, whoever tries it again."""
    for kind, counter in _COUNTED:
        if isinstance(error, kind):
            counter.add()


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


def _decode_argument(arg: object, hint: Any) -> object:
    """What the input says; anything but a raw one is passed on."""
    return activity.payload_converter().from_payload(arg.payload, hint) if isinstance(arg, RawValue) else arg


Limits = Literal["store", "heartbeat", "model", "maintenance"]
"""``store``: one operation on a store.  ``heartbeat``: one that may move many objects, and heartbeats.
``model``: as long as a model call, or the deletion of a large session, and heartbeats.
``maintenance``: hours, and heartbeats."""

_LIMITS: Final = "__helix_limits__"


def limited_as(limits: Limits) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Awaitable[R]]]:
    """Say which time limits an activity has; without it they are those of ``store``."""

    def mark(function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        setattr(function, _LIMITS, limits)
        return function

    return mark


def limits_of(method: Callable[..., object]) -> Limits:
    """The time limits that an activity was defined with."""
    limits: Limits = getattr(method, _LIMITS, "store")
    return limits


ATTEMPTS: Final = 3
"""So often code with a bug is tried."""

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


_ENDED_BY_SOMEBODY: Final = ("cancel_requested", "worker_shutdown", "paused", "reset")


def is_given_up() -> bool:
    """Whether Temporal cancelled the attempt since it heard nothing of it, and nobody wanted it to end."""
    details = find_cancellation()
    if details is None or any(getattr(details, name) for name in _ENDED_BY_SOMEBODY):
        return False
    return details.timed_out or details.not_found


def find_cancellation() -> activity.ActivityCancellationDetails | None:
    """Why the activity was cancelled; None if it was not, or if this is none."""
    return activity.cancellation_details() if activity.in_activity() else None


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


STORE_AWAY_PAUSES: Final = (0.1, 0.2, 0.5, 1.0, 2.0, *(5.0,) * 24)
"""Seconds before each repetition of `repeat_while_away`: two minutes, as far as an activity may take."""


tell_store_away: Final[ContextVar[Callable[[], None]]] = ContextVar("tell_store_away", default=lambda: None)
"""Tells the worker that an activity waits for a store which is away, instead of failing."""


wait_for_drain_end: Final[ContextVar[Callable[[], Awaitable[None]]]] = ContextVar(
    "wait_for_drain_end", default=activity.wait_for_worker_shutdown
)
"""Comes back when activities have to end since their worker stops; that of a `HelixWorker` drains first."""


async def repeat_while_away(call: Callable[[], Awaitable[R]], what: str, pauses: Sequence[float]) -> R:
    """What a store answers to a call that may be repeated: it is, while the store is away or silent.

    For what follows work that another attempt would do, or pay for, again: a tool's effect, a model's answer.
    The log says once that it waits, and once that the store has taken it, or that it is given up.

    Args:
        call: Each time the same, and harmless to repeat.
        what: Names for people what is kept meanwhile: ``the answer of the model``.
        pauses: Seconds before each repetition.

    Raises:
        StoreUnavailableError: It was still away after the last pause.
    """
    began, waits = time.monotonic(), False
    for pause in pauses:
        try:
            answer = await call()
        except StoreUnavailableError as away:
            if not waits:
                waits = True
                metrics.STORE_UNAVAILABLE.add()
                tell_store_away.get()()
                _log.warning("%s is kept in memory while a store is away: %s", what, away)
            await asyncio.sleep(pause)
        else:
            break
    else:
        try:
            answer = await call()
        except StoreUnavailableError:
            _log.warning("%s is given up, after %.1f seconds", what, time.monotonic() - began)
            raise
    if waits:
        _log.warning("%s is stored, after %.1f seconds", what, time.monotonic() - began)
    return answer


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
        raise with_text(error, text_of_failure(error)) from None
    except CODE_ERRORS as error:
        if is_cancellation(error) or not activity.in_activity():
            raise
        activity.logger.warning("%s failed", what, exc_info=error)
        # Without the cause: it would carry its traceback, and with it whatever a library put into it.
        raise code_failure(error, f"{what}: {describe_failure(error)}") from None


def code_failure(error: BaseException, text: str) -> ApplicationCodeError | ApplicationError:
    """The error of an attempt whose application code raised an exception; ``text`` is its message.

    A bug is permanent at the third attempt; any other exception is tried again, under its own name.
    """
    if is_bug(error):
        return ApplicationCodeError(text, attempts=ATTEMPTS)
    return ApplicationError(text, type=type(error).__name__)


def as_reopen(heads: ReopenHeads | None) -> Reopen | None:
    """What a workflow says of itself when it opens again."""
    if heads is None:
        return None
    return Reopen(heads.head, heads.turn_start, heads.inputs, heads.answered, heads.reset)
