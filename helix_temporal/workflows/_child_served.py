"""Sub-agents on another task queue: whether anybody there begins with their sessions."""

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError, FailureError

from helix_temporal.errors import AgentNotServedError
from helix_temporal.models.agents import ToolFacts
from helix_temporal.models.children import TakenUpInput

TakenUp = Callable[[TakenUpInput], Awaitable[bool]]
"""Tells whether a worker has begun with an execution, and ends one that none has begun with."""


async def check_begun(
    handle: "workflow.ChildWorkflowHandle[Any, Any]", facts: ToolFacts, taken_up: TakenUp
) -> None:
    """Give a worker its time to begin with a session; come back when one has, or when it is over.

    Temporal has no schedule-to-start time-out for workflows: a timer and a look at the child's history do as
    much, and a child that ends before leaves no more than the timer.

    Raises:
        ApplicationError: None has begun, and none will.
    """
    with contextlib.suppress(TimeoutError):
        await workflow.wait_condition(handle.done, timeout=facts.schedule_to_start)
        return
    if await taken_up(TakenUpInput(workflow_id=handle.id, run_id=handle.first_execution_run_id or "")):
        return
    with contextlib.suppress(FailureError):
        await handle
    kind = AgentNotServedError.__name__
    raise ApplicationError(
        f"{kind}: no worker of task queue {facts.task_queue!r} began with its session within "
        f"{facts.schedule_to_start:g} s; start one that serves agent {facts.agent!r}",
        type=kind,
        non_retryable=True,
    )
