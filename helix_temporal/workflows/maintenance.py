"""Workflows that schedules start: sweep, archive upkeep, clean-up, expired calls."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
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
from helix_temporal.workflows.calls import asyncio_cancelled

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
"""Days within which each part of the archive is looked at as a whole; the parts are in as many groups."""
_SLACK: Final = 600.0
"""Seconds by which a run looks back further than to the begin of the last one: what was written then may
have become visible later."""


@dataclass(frozen=True, slots=True)
class UpkeepPlan:
    """What a run of upkeep looks at.

    Attributes:
        since: The time of the last run, for parts that are looked at by what has changed.
        whole: The parts that are looked at as a whole, whatever has changed.
        audited: Of these, those that are verified if that is asked for.
        next_group: Where the next run goes on.
        day: When the run begins, in days since 1970.
    """

    since: float | None
    whole: frozenset[int]
    audited: frozenset[int]
    next_group: int
    day: int


def plan_upkeep(input: KeepInput, last: KeepResult | None, today: int) -> UpkeepPlan:
    """Which parts of the archive a run looks at as a whole.

    The parts are in 30 groups.  A run takes as many of them, behind those of the last run, as bring it round
    within 30 days if runs come at this pace; so it is whatever the interval of the schedule is, and where
    runs were missed.  Parts in which something failed last time come on top.

    Args:
        input: What is asked for.
        last: The result of the last run of the same schedule; None: there was none.
        today: In days since 1970.
    """
    first = 0 if last is None else last.group
    count = _count_groups_due(None if last is None or last.day is None else today - last.day)
    groups = {(first + number) % _ALL_WITHIN for number in range(count)}
    audited = frozenset(part for part in range(ARCHIVE_PARTS) if part % _ALL_WITHIN in groups)
    audited = audited.union(() if last is None else last.missed)
    everything = frozenset(range(ARCHIVE_PARTS))
    since = None if input.whole or last is None else last.since
    return UpkeepPlan(
        since=since,
        whole=everything if since is None else audited,
        audited=everything if input.whole else audited,
        next_group=(first + count) % _ALL_WITHIN,
        day=today,
    )


def _count_groups_due(days: int | None) -> int:
    """How many groups a run takes, so many days after the last one; None: there was none."""
    if days is None:
        return 1
    if days <= 0:
        return 0
    runs = max(_ALL_WITHIN // days, 1)
    return -(-_ALL_WITHIN // runs)


def note_progress(
    summary: KeepResult, missed: Collection[int], plan: UpkeepPlan, input: KeepInput, last: KeepResult | None
) -> KeepResult:
    """The result of a run, with what the next one has to know.

    Args:
        summary: What was done; its ``since`` is when the first part was begun.
        missed: Parts in which something failed: they alone are looked at as a whole next time.
        plan: What was looked at.
        input: What was asked for.  A run of some parts changes nothing of what is known of all the others.
        last: As `plan_upkeep`.
    """
    if input.parts is None:
        since = None if summary.since is None else summary.since - _SLACK
        progress = {"since": since, "day": plan.day, "group": plan.next_group}
        return summary.model_copy(update={**progress, "missed": tuple(sorted(missed))})
    before = last or KeepResult()
    progress = {"since": before.since, "day": before.day, "group": before.group}
    left = {*before.missed}.difference(input.parts).union(missed)
    return summary.model_copy(update={**progress, "missed": tuple(sorted(left))})


@workflow.defn(name="helix.keep")
class KeepWorkflow:
    """Compacts, collects garbage and, if asked, audits; a live session does not notice.

    A run looks at the threads that have changed since the last one of its schedule, at all of the parts in
    which something failed then, and at all of some further parts: within 30 days at all of the archive.
    """

    @workflow.run
    async def run(self, input: KeepInput) -> KeepResult:
        """Go through the parts of the archive, one activity each."""
        last = _find_last_result()
        plan = plan_upkeep(input, last, int(workflow.now().timestamp() // 86_400))
        summary, missed = KeepResult(), set[int]()
        for part in range(ARCHIVE_PARTS) if input.parts is None else input.parts:
            request = KeepPartInput(
                part=part,
                since=None if part in plan.whole else plan.since,
                audit=input.audit and part in plan.audited,
                parallel=input.parallel,
                abandoned_after=input.abandoned_after,
            )
            found = await self._keep_part(request)
            summary = summary.plus(found)
            if found.failures:
                missed.add(part)
        if input.records:
            summary = summary.model_copy(update={"records": await self._keep_records()})
        return note_progress(summary, missed, plan, input, last)

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
            if asyncio_cancelled(error):
                raise asyncio.CancelledError from error
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
            if asyncio_cancelled(error):
                raise asyncio.CancelledError from error
            workflow.logger.warning("records are not kept: %s", error.cause or error)
            return None


def _find_last_result() -> KeepResult | None:
    """What the last run of the same schedule said."""
    if not workflow.has_last_completion_result():
        return None
    last: KeepResult | None = workflow.get_last_completion_result(KeepResult)
    return last


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
