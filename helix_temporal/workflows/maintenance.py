"""Workflows that schedules start: sweep, archive upkeep, clean-up, expired calls."""

from datetime import timedelta
from typing import Final

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

from helix_temporal.activities.maintenance import CleanupActivities, MaintenanceActivities, WakingActivities
from helix_temporal.models.maintenance import (
    ARCHIVE_PARTS,
    AgeCleanupSummary,
    CleanupInput,
    CleanupResult,
    CleanupSummary,
    KeepInput,
    KeepPartInput,
    KeepRecordsInput,
    KeepResult,
    RecordsKept,
    SweepInput,
    SweepResult,
)
from helix_temporal.models.waiting import WakeInput, WakeResult

_RETRY = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=10)


@workflow.defn(name="helix.sweep")
class SweepWorkflow:
    """Archives every hot thread that its own session did not: after terminate, time-outs, lost workers.

    A flush is a compare-and-swap, so a sweep needs no lock and harms no live session; a thread that
    cannot be archived is named in the result and does not stop the others.
    """

    @workflow.run
    async def run(self, input: SweepInput) -> SweepResult:
        """One activity, its summary: however many threads are hot, it is one action and its heartbeats."""
        return await workflow.execute_activity_method(
            MaintenanceActivities.sweep,
            input,
            start_to_close_timeout=timedelta(hours=2),
            heartbeat_timeout=timedelta(seconds=30),
            retry_policy=_RETRY,
        )


_ALL_WITHIN: Final = 30
"""Days within which each part of the archive is looked at as a whole."""
_SLACK: Final = 600.0
"""Seconds by which a run looks back further than to the begin of the last one: what was written then may
have become visible later."""


@workflow.defn(name="helix.keep")
class KeepWorkflow:
    """Compacts, collects garbage and, if asked, audits; a live session does not notice.

    A run looks at the threads that have changed since the last one of its schedule, and at all of a thirtieth
    of the archive, another one each day.
    """

    @workflow.run
    async def run(self, input: KeepInput) -> KeepResult:
        """Go through the parts of the archive, one activity each."""
        since = None if input.whole else _find_since()
        today = int(workflow.now().timestamp() // 86_400)
        summary = KeepResult()
        for part in range(ARCHIVE_PARTS) if input.parts is None else input.parts:
            whole = since is None or part % _ALL_WITHIN == today % _ALL_WITHIN
            audit = input.audit and (input.whole or part % _ALL_WITHIN == today % _ALL_WITHIN)
            request = KeepPartInput(
                part=part,
                since=None if whole else since,
                audit=audit,
                parallel=input.parallel,
                abandoned_after=input.abandoned_after,
            )
            summary = summary.plus(await self._keep_part(request))
        if input.records:
            summary = summary.model_copy(update={"records": await self._keep_records()})
        return summary.model_copy(update={"since": _next_since(summary, since, input)})

    async def _keep_part(self, request: KeepPartInput) -> KeepResult:
        try:
            return await workflow.execute_activity_method(
                MaintenanceActivities.keep_part,
                request,
                start_to_close_timeout=timedelta(hours=6),
                heartbeat_timeout=timedelta(seconds=30),
                retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=5),
            )
        except ActivityError as error:
            workflow.logger.warning("part %d is not kept: %s", request.part, error.cause or error)
            return KeepResult(failures=1, failed=(f"part {request.part}",))

    async def _keep_records(self) -> RecordsKept | None:
        try:
            return await workflow.execute_activity_method(
                MaintenanceActivities.keep_records,
                KeepRecordsInput(),
                start_to_close_timeout=timedelta(hours=6),
                heartbeat_timeout=timedelta(seconds=30),
                retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=5),
            )
        except ActivityError as error:
            workflow.logger.warning("records are not kept: %s", error.cause or error)
            return None


def _find_since() -> float | None:
    """What the last run of the same schedule says; None: look at everything."""
    if not workflow.has_last_completion_result():
        return None
    last: KeepResult | None = workflow.get_last_completion_result(KeepResult)
    return None if last is None else last.since


def _next_since(summary: KeepResult, since: float | None, input: KeepInput) -> float | None:
    """Not later than what was missed: after a failure, or where only some parts were asked for, as before."""
    if summary.failures or input.parts is not None or summary.since is None:
        return since
    return summary.since - _SLACK


@workflow.defn(name="helix.cleanup")
class CleanupWorkflow:
    """Ends sessions past their time, deletes those nobody uses, forgets operations long done."""

    @workflow.run
    async def run(self, input: CleanupInput) -> CleanupResult:
        """Do what the input names, one after the other."""
        expired, old, purged = CleanupSummary(), AgeCleanupSummary(), 0
        options = workflow.ActivityConfig(
            start_to_close_timeout=timedelta(hours=2),
            heartbeat_timeout=timedelta(minutes=2),
            retry_policy=_RETRY,
        )
        if input.expired is not None:
            expired = await workflow.execute_activity_method(
                CleanupActivities.expired, input.expired, **options
            )
        if input.old is not None:
            old = await workflow.execute_activity_method(CleanupActivities.old, input.old, **options)
        if input.operations is not None:
            done = await workflow.execute_activity_method(
                CleanupActivities.operations, input.operations, **options
            )
            purged = done.purged
        return CleanupResult(expired=expired, old=old, operations_purged=purged)


@workflow.defn(name="helix.wake")
class WakeWorkflow:
    """Starts sessions that ended while they waited for people, and whose deadline has passed since.

    The session tells its model that nobody answered, or that a sub-agent which waits has used up its time,
    and the turn goes on; a tree of sessions is started from its root.  May be run at any time, by anybody:
    a session that runs is not touched.
    """

    @workflow.run
    async def run(self, input: WakeInput) -> WakeResult:
        """One activity, its summary."""
        return await workflow.execute_activity_method(
            WakingActivities.wake,
            input,
            start_to_close_timeout=timedelta(minutes=30),
            heartbeat_timeout=timedelta(seconds=30),
            retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=10),
        )
