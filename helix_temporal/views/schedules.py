"""The schedules of maintenance, as Temporal tells of them."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from temporalio.client import (
    Client,
    ScheduleActionExecutionStartWorkflow,
    ScheduleActionResult,
    ScheduleDescription,
    WorkflowFailureError,
)
from temporalio.exceptions import ActivityError, ChildWorkflowError
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal._deployments import settings_of
from helix_temporal.maintenance import name_schedules
from helix_temporal.settings import Settings
from helix_temporal.views.models import ScheduleFacts, ScheduleRun

_RUNS: Final = 5
_RPC: Final = timedelta(seconds=10)
_NEXT: Final = 3
_MESSAGE: Final = 500
_AROUND: Final = (WorkflowFailureError, ActivityError, ChildWorkflowError)
"""Errors that only say where another one happened."""
_MISSING: Final = "it is not there; helix-temporal maintenance makes it"


async def read_schedules(
    client: Client, task_queue: str | None = None, *, runs: int = _RUNS
) -> tuple[ScheduleFacts, ...]:
    """The schedules with their newest runs; none at all where nobody has made one.

    Args:
        client: Connected with `HelixPlugin`, whose settings name the deployment.
        task_queue: Of the session workers; by default the one in these settings.
        runs: Of each schedule, so many of the newest, whose outcome Temporal is asked for.

    Raises:
        RPCError: Temporal does not answer, or refuses.
    """
    queue = task_queue or (settings_of(client) or Settings()).task_queue
    names = name_schedules(client, queue)
    found = await asyncio.gather(*(_read_schedule(client, kind, name, runs) for kind, name in names.items()))
    return tuple(found) if any(each.problem is None for each in found) else ()


async def _read_schedule(client: Client, kind: str, schedule_id: str, runs: int) -> ScheduleFacts:
    try:
        described = await client.get_schedule_handle(schedule_id).describe(rpc_timeout=_RPC)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return ScheduleFacts(schedule_id=schedule_id, kind=kind, problem=_MISSING)
    newest = list(described.info.recent_actions)[::-1][:runs]
    return describe_schedule(
        kind, described, await asyncio.gather(*(_read_run(client, each) for each in newest))
    )


def describe_schedule(
    kind: str, described: ScheduleDescription, runs: Sequence[ScheduleRun]
) -> ScheduleFacts:
    """A schedule as it is shown."""
    state, info = described.schedule.state, described.info
    intervals = [each.every for each in described.schedule.spec.intervals]
    return ScheduleFacts(
        schedule_id=described.id,
        kind=kind,
        paused=state.paused,
        note=state.note or "",
        every=int(min(intervals, default=timedelta()) / timedelta(milliseconds=1)),
        made_at=_millis(info.created_at),
        running=len(info.running_actions),
        recent=tuple(runs),
        next_at=() if state.paused else tuple(_millis(each) for each in info.next_action_times[:_NEXT]),
    )


async def _read_run(client: Client, result: ScheduleActionResult) -> ScheduleRun:
    """A run with its outcome; one that Temporal has forgotten has no status."""
    action, at = result.action, _millis(result.started_at)
    if not isinstance(action, ScheduleActionExecutionStartWorkflow):
        return ScheduleRun(at=at)
    run = ScheduleRun(at=at, workflow_id=action.workflow_id, run_id=action.first_execution_run_id)
    handle = client.get_workflow_handle(run.workflow_id, first_execution_run_id=run.run_id)
    try:
        status = (await handle.describe(rpc_timeout=_RPC)).status
        ended = run.model_copy(update={"status": "" if status is None else status.name.lower()})
        failure = await _read_failure(client, run) if ended.is_failed else None
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return run
    return ended.model_copy(update={"failure": failure})


async def _read_failure(client: Client, run: ScheduleRun) -> str:
    """Why a run failed, in a line."""
    try:
        await client.get_workflow_handle(run.workflow_id, run_id=run.run_id).result(follow_runs=False)
    except WorkflowFailureError as error:
        cause: BaseException = error
        while isinstance(cause, _AROUND) and cause.__cause__ is not None:
            cause = cause.__cause__
        name = getattr(cause, "type", None) or type(cause).__name__
        return f"{name}: {getattr(cause, 'message', cause)}"[:_MESSAGE]
    return ""


def _millis(moment: datetime) -> int:
    return max(int(moment.timestamp() * 1000), 0)
