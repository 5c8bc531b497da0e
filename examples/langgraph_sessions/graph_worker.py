"""A worker: ``graph_worker.py QUEUE [ACTIVITY]``.  It kills itself once that activity has done its work.

Temporal does not know of the work then.  Each activity that has done its work is a line of ``ORDER_WORK``.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from order_graph import OrderDesk, builder
from temporalio import activity
from temporalio.client import Client
from temporalio.langgraph import LangGraphPlugin
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor, Worker

from helix_temporal import Settings
from helix_temporal.frameworks.langgraph_activities import HelixGraphPlugin


class Kill(Interceptor):
    """Stands around all activities."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        """As in `Interceptor`."""
        return _Kill(next)


class _Kill(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        result = await self.next.execute_activity(input)
        name = activity.info().activity_type
        note_work(name)
        if name in sys.argv[2:]:
            # No ``finally`` runs, and nothing is told to anybody.
            os.kill(os.getpid(), signal.SIGKILL)
        return result


def note_work(name: str) -> None:
    """A file outlives the process that is killed."""
    with Path(os.environ["ORDER_WORK"]).open("a") as file:
        file.write(f"{name}\n")


async def main() -> None:
    """Serve until the process ends."""
    settings = Settings.from_env({k: v for k, v in os.environ.items() if k.startswith("HELIX_")})
    client = await Client.connect(settings.temporal_address)
    await Worker(
        client,
        task_queue=sys.argv[1],
        workflows=[OrderDesk],
        plugins=[LangGraphPlugin(graphs={"orders": builder}), HelixGraphPlugin(settings)],
        interceptors=[Kill()],
    ).run()


if __name__ == "__main__":
    asyncio.run(main())
