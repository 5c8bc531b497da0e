"""A worker, as a user starts one: ``python -m chaos.worker``; with ``maintenance`` the maintenance worker."""

import asyncio
import os
import sys
from datetime import timedelta

from chaos.agents import agents_from_environment
from helix_temporal.maintenance import MaintenancePlan, ensure_schedules, maintenance_queue
from helix_temporal.settings import Settings
from helix_temporal.worker import HelixWorker, connect, serve


async def _maintain(settings: Settings) -> None:
    client, helix = await connect(settings)
    often = timedelta(seconds=5)
    async with HelixWorker(client, helix, task_queue=maintenance_queue(settings.task_queue)):
        plan = MaintenancePlan(sweep=often, evict=often, wake=often)
        await ensure_schedules(client, settings.task_queue, plan)
        await asyncio.Event().wait()


def main() -> None:
    """Serve until killed."""
    settings = Settings.from_env(os.environ)
    if sys.argv[1:] == ["maintenance"]:
        asyncio.run(_maintain(settings))
    else:
        asyncio.run(serve(settings, agents_from_environment()))


if __name__ == "__main__":
    main()
