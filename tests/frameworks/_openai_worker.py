"""A worker process that ends by SIGKILL at a point, once: ``python -m tests.frameworks._openai_worker …``."""

import asyncio
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.openai_agents import ModelActivityParameters, OpenAIAgentsPlugin
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor, Worker

from helix_temporal import Settings
from helix_temporal.frameworks.openai_agents import HelixOpenAIPlugin
from helix_temporal.frameworks.openai_agents_workflow import APPEND, CUT, MODEL_ACTIVITIES, OPEN
from tests.frameworks import _openai_workflows as own

POINTS = (
    "before the open",
    "after the open",
    "before the model",
    "after the model",
    "after the answer",
    "in a tool",
    "before the end",
    "after the end",
    "before the cut",
    "after the cut",
)


class Killer:
    """Kills this process at a point, unless an earlier process was killed there."""

    def __init__(self, point: str, mark: Path) -> None:
        self._point, self._mark = point, mark

    def reach(self, point: str) -> None:
        """We are at this point."""
        if point and point == self._point and not self._mark.exists():
            self._mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class KilledModel(own.CountingModel):
    """Dies when it has answered, before anybody was told."""

    def __init__(self, calls: Path, killer: Killer) -> None:
        super().__init__(calls)
        self._killer = killer

    async def _answer(self, instructions: Any, given: Any) -> list[Any]:
        output = await super()._answer(instructions, given)
        self._killer.reach("after the model")
        return output


class KillingInterceptor(Interceptor):
    """Reaches the points around activities; stands around those of the plugins."""

    def __init__(self, killer: Killer) -> None:
        self.killer = killer

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        """As in `Interceptor`."""
        return _Killing(next, self.killer)


class _Killing(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, killer: Killer) -> None:  # noqa: A002
        super().__init__(next)
        self._killer = killer

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        """Reach the points before and after."""
        before, after = {
            OPEN: ("before the open", "after the open"),
            APPEND: ("before the end", "after the end"),
            CUT: ("before the cut", "after the cut"),
            "look": ("in a tool", ""),
            **dict.fromkeys(MODEL_ACTIVITIES, ("before the model", "after the answer")),
        }[activity.info().activity_type]
        self._killer.reach(before)
        result = await self.next.execute_activity(input)
        self._killer.reach(after)
        return result


async def serve(address: str, queue: str, calls: Path, point: str) -> None:
    """Serve until the process ends."""
    killer = Killer(point, calls.with_suffix(".killed"))
    # No process stalls for so long: an attempt that is given up while it runs would be paid for, too.
    params = ModelActivityParameters(
        start_to_close_timeout=timedelta(seconds=120),
        heartbeat_timeout=timedelta(seconds=15),
        retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=100)),
    )
    model = own.CountingProvider(KilledModel(calls, killer))
    plugins = [
        OpenAIAgentsPlugin(params, model, add_temporal_spans=False),
        HelixOpenAIPlugin(Settings.from_env({k: v for k, v in os.environ.items() if k in _settings()})),
    ]
    client = await Client.connect(address, plugins=plugins)
    worker = Worker(
        client,
        task_queue=queue,
        workflows=own.WORKFLOWS,
        activities=own.ACTIVITIES,
        interceptors=[KillingInterceptor(killer)],
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
    )
    await worker.run()


def _settings() -> list[str]:
    return os.environ.get("SETTINGS", "").split(",")


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]))
