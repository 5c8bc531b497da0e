"""One function for workflows of one's own that calls any activity of the pack."""

import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final, TypeVar, Unpack

from temporalio import activity, exceptions, workflow
from temporalio.exceptions import ActivityError, ApplicationError

from helix_temporal.activities._limits import limits_of
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.models.sessions import CallPolicy
from helix_temporal.workflows._calls import (
    OPEN_POLICY,
    TemporalCalls,
    run_to_completion,
    typed,
)

I = TypeVar("I")  # noqa: E741 — the input of an activity
R = TypeVar("R")

_MAINTENANCE: Final = timedelta(hours=2)


async def call(
    method: Callable[[Any, I], Awaitable[R]],
    request: I,
    *,
    shielded: bool = False,
    policy: CallPolicy = OPEN_POLICY,
    **options: Unpack[workflow.ActivityConfig],
) -> R:
    """Run one activity of the pack on a worker that has the stores, and return its result.

    ::

        opened = await call(ThreadActivities.open, OpenThreadInput(thread_id="order-7"))

    The activity has the time-outs, heartbeats and retries that it was made for.  It stands for its
    operation: however often it is tried, it takes effect once.

    Args:
        method: The activity, as a method of its class in `helix_temporal.activities`.
        request: Its input.
        shielded: For ``finally`` blocks: await the end of the activity even if the workflow is cancelled
            meanwhile, at most as long as the policy's ``finaliser_budget``.  A cancel that comes during
            such a call does not end it, and is not raised after it.
        policy: Time-outs and retries; by default those of a worker without settings of its own.
        options: Of `temporalio.workflow.execute_activity`, instead of those that the activity has, such as
            ``task_queue`` where this workflow's own workers do not have the stores.

    Raises:
        HelixError: What the activity raised, as the class that it is, e.g. `HeadMovedError`.
        StoreUnavailableError: It had no result in time; also where no worker serves the activity.
        asyncio.CancelledError: The workflow was cancelled.
    """
    _end_with_dropped_run()
    chosen = call_options(method, policy)
    if shielded:
        chosen["schedule_to_close_timeout"] = timedelta(seconds=policy.finaliser_budget)
    chosen.update(options)
    handle = workflow.start_activity_method(method, request, **chosen)
    try:
        if shielded:
            return await typed(run_to_completion(handle, lambda: None, lambda: False))
        return await typed(handle)
    except ActivityError as error:
        if isinstance(error.cause, exceptions.TimeoutError):
            raise _timed_out(method, error.cause) from error
        raise


def _end_with_dropped_run() -> None:
    """Raise `GeneratorExit` again in a run that its worker has dropped.

    A worker that ends leaves runs in its cache.  Python closes their coroutines when it collects them,
    and so enters their ``finally`` blocks, perhaps while another workflow runs: nothing may be started
    there.  Whoever takes the run over replays it.
    """
    dropped = sys.exception()
    if isinstance(dropped, GeneratorExit):
        raise dropped


def call_options(method: Callable[..., object], policy: CallPolicy = OPEN_POLICY) -> workflow.ActivityConfig:
    """The options with which `call` runs an activity."""
    calls = TemporalCalls(policy)
    match limits_of(method):
        case "store":
            return calls.store_options()
        case "heartbeat":
            return calls.store_options(beats=True)
        case "model":
            return calls.model_options()
        case "maintenance":
            options = calls.store_options(beats=True)
            options["start_to_close_timeout"] = _MAINTENANCE
            del options["schedule_to_close_timeout"]
            return options


def _timed_out(method: Callable[..., object], error: exceptions.TimeoutError) -> StoreUnavailableError:
    """What to raise for an activity without a result; it names the last failure of its attempts."""
    definition = activity._Definition.from_callable(method)  # noqa: SLF001 — there is no public way to a name
    name = (definition.name if definition else None) or getattr(method, "__name__", "activity")
    last = error.cause
    why = "no attempt has ended; is a worker with HelixPlugin running on that task queue?"
    if isinstance(last, ApplicationError):
        why = f"the last attempt failed: {last.type}: {last.message}"
    elif last is not None:
        why = f"the last attempt failed: {last}"
    return StoreUnavailableError(f"{name}: no result in time; {why}")
