"""A workflow that asks a store for one thing after the other, on another task queue."""

from datetime import timedelta

from pydantic import BaseModel
from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from helix_temporal.models.threads import DescribeThreadResult, ThreadInput


class Describing(BaseModel):
    """Where a thread stands is asked so many times of the workers of a task queue."""

    thread_id: str
    task_queue: str
    times: int


@workflow.defn(name="bench.describing")
class DescribingWorkflow:
    """Its history says when each call was scheduled and when it began."""

    @workflow.run
    async def run(self, start: Describing) -> int:
        """Ask, and give how often."""
        for _ in range(start.times):
            await workflow.execute_activity(
                "helix.threads.describe",
                ThreadInput(thread_id=start.thread_id),
                result_type=DescribeThreadResult,
                task_queue=start.task_queue,
                start_to_close_timeout=timedelta(seconds=60),
            )
        return start.times
