"""The janitor's part for people who do not answer: sessions are started once a deadline has passed."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

from helix_temporal.activities.waking import WakingActivities
from helix_temporal.models.waking import WakeInput, WakeResult


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
