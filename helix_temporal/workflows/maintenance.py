"""Workflows that schedules start: sweep, archive upkeep, clean-up, expired calls."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

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
    KeepRecordsInput,
    KeepResult,
    KeepThreadInput,
    KeepThreadResult,
    ListArchivedInput,
    RecordsKept,
    SweepInput,
    SweepResult,
)
from helix_temporal.models.waiting import WakeInput, WakeResult

_NAMED_FAILURES = 20
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


Kept = KeepThreadResult | str
"""What was done to a thread, or the id of one that could not be kept."""


@workflow.defn(name="helix.keep")
class KeepWorkflow:
    """Compacts, collects garbage and, if asked, audits; a live session does not notice."""

    @workflow.run
    async def run(self, input: KeepInput) -> KeepResult:
        """Go through the parts of the archive; continues as new when a page of threads is done."""
        part, after, summary = input.part, input.after, input.summary or KeepResult()
        seen = 0
        while part < ARCHIVE_PARTS:
            page = await workflow.execute_activity_method(
                MaintenanceActivities.list_archived,
                ListArchivedInput(part=part, after=after, limit=input.page),
                start_to_close_timeout=timedelta(minutes=30),
                heartbeat_timeout=timedelta(seconds=30),
            )
            summary = add_kept(summary, await self._keep_threads(page.thread_ids, input))
            seen += len(page.thread_ids)
            part, after = (part, page.thread_ids[-1]) if page.more else (part + 1, "")
            if seen >= input.page and part < ARCHIVE_PARTS:
                workflow.continue_as_new(
                    input.model_copy(update={"part": part, "after": after, "summary": summary})
                )
        if input.records:
            summary = summary.model_copy(update={"records": await self._keep_records()})
        return summary

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

    async def _keep_threads(self, thread_ids: Sequence[str], input: KeepInput) -> list[Kept]:
        slots = asyncio.Semaphore(input.parallel)

        async def one(thread_id: str) -> Kept:
            async with slots:
                return await self._keep_thread(thread_id, input)

        return list(await asyncio.gather(*(one(thread_id) for thread_id in thread_ids)))

    async def _keep_thread(self, thread_id: str, input: KeepInput) -> Kept:
        try:
            return await workflow.execute_activity_method(
                MaintenanceActivities.keep_thread,
                KeepThreadInput(
                    thread_id=thread_id, audit=input.audit, abandoned_after=input.abandoned_after
                ),
                start_to_close_timeout=timedelta(minutes=30),
                heartbeat_timeout=timedelta(seconds=30),
                retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=5),
            )
        except ActivityError as error:
            workflow.logger.warning("thread %r is not kept: %s", thread_id, error.cause or error)
            return thread_id


def add_kept(summary: KeepResult, found: Sequence[Kept]) -> KeepResult:
    """The summary with these threads counted in."""
    done = [each for each in found if isinstance(each, KeepThreadResult)]
    failed = tuple(each for each in found if isinstance(each, str))
    damaged = tuple(each.thread_id for each in done if each.problems)
    merged = sum(max(each.segments_before - each.segments_after, 0) for each in done)
    return KeepResult(
        seen=summary.seen + len(found),
        segments_merged=summary.segments_merged + merged,
        objects_deleted=summary.objects_deleted + sum(each.objects_deleted for each in done),
        bytes_deleted=summary.bytes_deleted + sum(each.bytes_deleted for each in done),
        damaged=(*summary.damaged, *damaged)[:_NAMED_FAILURES],
        problems=summary.problems + sum(len(each.problems) for each in done),
        failed=(*summary.failed, *failed)[:_NAMED_FAILURES],
        failures=summary.failures + len(failed),
    )


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
