"""A worker: ``order_worker.py QUEUE [ACTIVITY]``.  It kills itself when the first ACTIVITY is done.

That is the worst moment: the model has answered or the event is stored, and Temporal does not know.
"""

import asyncio
import os
import signal
import sys
from typing import Any

from google.adk.models import LLMRegistry
from order_workflow import ScriptedModel, Support, find_order
from temporalio import activity
from temporalio.client import Client
from temporalio.google_adk import GoogleAdkPlugin
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor, Worker

from helix_temporal import Settings
from helix_temporal.frameworks.google_adk.worker import HelixGoogleAdkPlugin


class Kill(Interceptor):
    """Around all activities."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return _Kill(next)


class _Kill(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        result = await self.next.execute_activity(input)
        if activity.info().activity_type in sys.argv[2:]:
            os.kill(os.getpid(), signal.SIGKILL)  # no `finally` runs, and the result goes nowhere
        return result


async def main() -> None:
    """Serve until the process ends."""
    LLMRegistry.register(ScriptedModel)
    settings = Settings.from_env(os.environ)
    plugins = [GoogleAdkPlugin(), HelixGoogleAdkPlugin(settings)]
    client = await Client.connect(settings.temporal_address, plugins=plugins)
    worker = Worker(
        client,
        task_queue=sys.argv[1],
        workflows=[Support],
        activities=[find_order],
        interceptors=[Kill()],
    )
    await worker.run()


if __name__ == "__main__":
    asyncio.run(main())
