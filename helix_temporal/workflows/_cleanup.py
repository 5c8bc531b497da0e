"""The clean-up of sessions as a workflow, for a schedule."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

from helix_temporal.activities.cleanup import CleanupActivities
from helix_temporal.models.cleanup import AgeCleanupSummary, CleanupInput, CleanupResult, CleanupSummary

_RETRY = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=10)


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
