"""A worker: ``desk_worker.py QUEUE``.

If the file ``DESK_DIES`` is not there, it kills itself once, at the worst moment: after the
model was paid and its answer stored, and before Temporal heard of it.
"""

import asyncio
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from desk import Desk, ScriptedProvider, find_order
from temporalio import activity
from temporalio.client import Client
from temporalio.openai_agents import ModelActivityParameters, OpenAIAgentsPlugin
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor, Worker

from helix_temporal import Settings
from helix_temporal.frameworks.openai_agents import HelixOpenAIPlugin


class Kill(Interceptor):
    """Stands around all activities."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        """As in `Interceptor`."""
        return _Kill(next)


class _Kill(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        result = await self.next.execute_activity(input)
        if activity.info().activity_type == "invoke_model_activity":
            die_once(Path(os.environ["DESK_DIES"]))
        return result


def die_once(mark: Path) -> None:
    """No ``finally`` runs, and nothing is told to anybody."""
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


async def main() -> None:
    """Serve until the process ends."""
    settings = Settings.from_env({k: v for k, v in os.environ.items() if k.startswith("HELIX_")})
    parameters = ModelActivityParameters(
        start_to_close_timeout=timedelta(seconds=60), heartbeat_timeout=timedelta(seconds=10)
    )
    plugins = [
        OpenAIAgentsPlugin(parameters, ScriptedProvider(), add_temporal_spans=False),
        HelixOpenAIPlugin(settings),
    ]
    client = await Client.connect(settings.temporal_address, plugins=plugins)
    await Worker(
        client,
        task_queue=sys.argv[1],
        workflows=[Desk],
        activities=[find_order],
        interceptors=[Kill()],
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=2),
    ).run()


if __name__ == "__main__":
    asyncio.run(main())
