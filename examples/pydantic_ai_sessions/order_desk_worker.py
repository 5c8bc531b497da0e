"""A worker of one task queue.  Given an activity's name, it kills itself after the first call of it.

That is when the activity has had its effect, and Temporal has not heard of it:
``python order_desk_worker.py a-queue helix.pydantic_ai.save``.
"""

import asyncio
import os
import signal
import sys
from datetime import timedelta
from typing import Any

from order_desk import OrderDesk
from pydantic_ai.durable_exec.temporal import PydanticAIPlugin
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor, Worker

from helix_temporal import Settings
from helix_temporal.frameworks.pydantic_ai_worker import HelixPydanticAIPlugin


class Kill(Interceptor):
    """Stands around all activities."""

    def __init__(self, killed_after: str) -> None:
        self.killed_after = killed_after

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        """As in `Interceptor`."""
        return _Kill(next, self.killed_after)


class _Kill(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, killed_after: str) -> None:  # noqa: A002
        super().__init__(next)
        self.killed_after = killed_after

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        result = await self.next.execute_activity(input)
        if activity.info().activity_type == self.killed_after:
            # No `finally` runs, and nothing is told to anybody.
            os.kill(os.getpid(), signal.SIGKILL)
        return result


async def main(queue: str, *killed_after: str) -> None:
    """Serve until the process ends."""
    settings = Settings.from_env(os.environ)
    plugins = [PydanticAIPlugin(), HelixPydanticAIPlugin(settings)]
    client = await Client.connect(settings.temporal_address, plugins=plugins)
    await Worker(
        client,
        task_queue=queue,
        workflows=[OrderDesk],
        interceptors=[Kill(each) for each in killed_after],
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=2),
    ).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
