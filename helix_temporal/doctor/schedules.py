"""Checks of the schedules of maintenance: there, not paused, and their last runs ended well."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio.client import (
    Client,
    ScheduleActionExecutionStartWorkflow,
    ScheduleDescription,
    WorkflowExecutionStatus,
)
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal.doctor.checks import Check, Probe, Status
from helix_temporal.doctor.shared import Shared
from helix_temporal.maintenance import schedule_ids
from helix_temporal.settings import Settings

_RPC: Final = timedelta(seconds=10)
_MISSED: Final = 3
"""Intervals without a run after which a schedule is said to stand still."""
_SPARE: Final = timedelta(minutes=2)
_FAILED: Final = frozenset(
    {
        WorkflowExecutionStatus.FAILED,
        WorkflowExecutionStatus.TIMED_OUT,
        WorkflowExecutionStatus.TERMINATED,
        WorkflowExecutionStatus.CANCELED,
    }
)


@dataclass(frozen=True, slots=True)
class ScheduleStatus:
    """Where a schedule stands; None of the rest where it is not there.

    Attributes:
        every: Between two runs.
        last_started: Of the last run.
        last_status: How it ended, or that it runs; None where Temporal has forgotten it.
        last_workflow: Its workflow's id.
    """

    schedule_id: str
    exists: bool = True
    paused: bool = False
    note: str = ""
    made_at: datetime | None = None
    every: timedelta = timedelta()
    last_started: datetime | None = None
    last_status: WorkflowExecutionStatus | None = None
    last_workflow: str = ""


def list_schedule_probes(client: Shared[Client], settings: Settings) -> list[Probe]:
    """One of each schedule.

    Args:
        client: Connects, once for all.
        settings: Whose schedules they are.
    """

    def make_probe(kind: str, schedule_id: str) -> Probe:
        async def look() -> Sequence[Check]:
            facts = await read_schedule(await client.get(), schedule_id)
            return [judge_schedule(kind, facts, datetime.now(UTC))]

        return Probe("maintenance", kind, look)

    ids = schedule_ids(settings.deployment.name, settings.task_queue)
    return [make_probe(kind, schedule_id) for kind, schedule_id in ids.items()]


async def read_schedule(client: Client, schedule_id: str) -> ScheduleStatus:
    """Ask for a schedule, and how its last run ended.

    Raises:
        RPCError: Temporal does not answer, or refuses.
    """
    try:
        described = await client.get_schedule_handle(schedule_id).describe(rpc_timeout=_RPC)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return ScheduleStatus(schedule_id, exists=False)
    state, intervals = described.schedule.state, described.schedule.spec.intervals
    started, workflow, run = _find_last_run(described)
    return ScheduleStatus(
        schedule_id,
        paused=state.paused,
        note=state.note or "",
        made_at=described.info.created_at,
        every=min((each.every for each in intervals), default=timedelta()),
        last_started=started,
        last_status=await _find_status(client, workflow, run),
        last_workflow=workflow,
    )


def _find_last_run(described: ScheduleDescription) -> tuple[datetime | None, str, str]:
    for each in reversed(described.info.recent_actions):
        if isinstance(each.action, ScheduleActionExecutionStartWorkflow):
            return each.started_at, each.action.workflow_id, each.action.first_execution_run_id
    return None, "", ""


async def _find_status(client: Client, workflow: str, run: str) -> WorkflowExecutionStatus | None:
    if not workflow:
        return None
    handle = client.get_workflow_handle(workflow, first_execution_run_id=run)
    try:
        return (await handle.describe(rpc_timeout=_RPC)).status
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return None


def judge_schedule(kind: str, facts: ScheduleStatus, now: datetime) -> Check:
    """What is to be said of a schedule."""
    if not facts.exists:
        said = f"schedule {facts.schedule_id!r} is not there; helix-temporal maintenance makes it"
        return _check(kind, "warning", said)
    if facts.paused:
        note = f" ({facts.note})" if facts.note else ""
        said = f"is paused{note}; temporal schedule toggle --unpause --schedule-id {facts.schedule_id}"
        return _check(kind, "warning", said)
    if facts.last_status in _FAILED:
        assert facts.last_status is not None
        said = (
            f"its last run {facts.last_status.name.lower()}; look at workflow {facts.last_workflow!r}, and "
            "at the log of the maintenance worker"
        )
        return _check(kind, "failed", said)
    newest = facts.last_started or facts.made_at
    if newest is not None and now - newest > _MISSED * facts.every + _SPARE:
        said = (
            f"has not run for {_format_span(now - newest)}, every {_format_span(facts.every)} expected; is a "
            "run stuck, because no maintenance worker is there?"
        )
        return _check(kind, "warning", said)
    ran = (
        f"last run {_format_span(now - facts.last_started)} ago" if facts.last_started else "has not run yet"
    )
    return _check(kind, "ok", f"every {_format_span(facts.every)}, {ran}")


def _format_span(span: timedelta) -> str:
    seconds = max(span.total_seconds(), 0)
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _check(kind: str, status: Status, says: str) -> Check:
    return Check(about="maintenance", name=kind, status=status, says=says)
