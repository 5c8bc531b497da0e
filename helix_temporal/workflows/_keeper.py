"""The keeper: upkeep of all archived threads, also of those that no session has touched for a year."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

from helix_temporal.activities.maintenance import MaintenanceActivities
from helix_temporal.models.maintenance import (
    KeepInput,
    KeepResult,
    KeepThreadInput,
    KeepThreadResult,
    ListArchivedInput,
)

_PARTS = 256
_NAMED = 20

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
        while part < _PARTS:
            page = await workflow.execute_activity_method(
                MaintenanceActivities.list_archived,
                ListArchivedInput(part=part, after=after, limit=input.page),
                start_to_close_timeout=timedelta(minutes=30),
                heartbeat_timeout=timedelta(seconds=30),
            )
            summary = add_kept(summary, await self._keep(page.thread_ids, input))
            seen += len(page.thread_ids)
            part, after = (part, page.thread_ids[-1]) if page.more else (part + 1, "")
            if seen >= input.page and part < _PARTS:
                workflow.continue_as_new(
                    input.model_copy(update={"part": part, "after": after, "summary": summary})
                )
        return summary

    async def _keep(self, thread_ids: Sequence[str], input: KeepInput) -> list[Kept]:
        slots = asyncio.Semaphore(input.parallel)

        async def one(thread_id: str) -> Kept:
            async with slots:
                return await self._one(thread_id, input)

        return list(await asyncio.gather(*(one(thread_id) for thread_id in thread_ids)))

    async def _one(self, thread_id: str, input: KeepInput) -> Kept:
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
        damaged=(*summary.damaged, *damaged)[:_NAMED],
        problems=summary.problems + sum(len(each.problems) for each in done),
        failed=(*summary.failed, *failed)[:_NAMED],
        failures=summary.failures + len(failed),
    )
