"""The janitor: a workflow that sweeps all hot threads, started by a schedule."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

from helix_temporal.activities.maintenance import MaintenanceActivities
from helix_temporal.models.maintenance import (
    KeepThreadInput,
    ListHotInput,
    SweepInput,
    SweepResult,
    SweepThreadInput,
    SweepThreadResult,
)

_NAMED_FAILURES = 20


@workflow.defn(name="helix.sweep")
class SweepWorkflow:
    """Archives every hot thread that its own session did not: after terminate, time-outs, lost workers.

    A flush is a compare-and-swap, so a sweep needs no lock and harms no live session; a thread that
    cannot be archived is named in the result and does not stop the others.
    """

    @workflow.run
    async def run(self, input: SweepInput) -> SweepResult:
        """Sweep page by page; continues as new after each page of threads."""
        page = await workflow.execute_activity_method(
            MaintenanceActivities.list_hot,
            ListHotInput(after=input.after, limit=input.page),
            start_to_close_timeout=timedelta(minutes=10),
            heartbeat_timeout=timedelta(seconds=30),
        )
        found = await self._sweep(page.thread_ids, input)
        summary = add(input.summary or SweepResult(), found)
        if page.more:
            workflow.continue_as_new(
                input.model_copy(update={"after": page.thread_ids[-1], "summary": summary})
            )
        return summary

    async def _sweep(self, thread_ids: Sequence[str], input: SweepInput) -> list[SweepThreadResult]:
        slots = asyncio.Semaphore(input.parallel)

        async def one(thread_id: str) -> SweepThreadResult:
            async with slots:
                return await self._one(thread_id, input)

        return list(await asyncio.gather(*(one(thread_id) for thread_id in thread_ids)))

    async def _one(self, thread_id: str, input: SweepInput) -> SweepThreadResult:
        retry = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=5)
        try:
            result = await workflow.execute_activity_method(
                MaintenanceActivities.sweep_thread,
                SweepThreadInput(thread_id=thread_id, evict=input.evict),
                start_to_close_timeout=timedelta(minutes=2),
                heartbeat_timeout=timedelta(seconds=30),
                retry_policy=retry,
            )
            if input.upkeep:
                await workflow.execute_activity_method(
                    MaintenanceActivities.keep_thread,
                    KeepThreadInput(thread_id=thread_id),
                    start_to_close_timeout=timedelta(minutes=30),
                    heartbeat_timeout=timedelta(seconds=30),
                    retry_policy=retry,
                )
        except ActivityError as error:
            cause = error.cause or error
            return SweepThreadResult(thread_id=thread_id, outcome="failed", detail=str(cause)[:200])
        return result


def add(summary: SweepResult, found: Sequence[SweepThreadResult]) -> SweepResult:
    """The summary with these threads counted in."""

    def count(outcome: str) -> int:
        return sum(1 for each in found if each.outcome == outcome)

    failed = tuple(each.thread_id for each in found if each.outcome == "failed")
    return SweepResult(
        seen=summary.seen + len(found),
        archived=summary.archived + count("archived"),
        clean=summary.clean + count("clean"),
        gone=summary.gone + count("gone"),
        failed=(*summary.failed, *failed)[:_NAMED_FAILURES],
        failures=summary.failures + len(failed),
        pending_bytes=summary.pending_bytes + sum(each.pending_bytes for each in found),
    )
