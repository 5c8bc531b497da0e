"""``helix-temporal maintenance``: archive what sessions left behind, and keep the archive small."""

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated

import typer
from temporalio.client import Client
from temporalio.service import RPCError

from helix_temporal.cli._services import run_service
from helix_temporal.cli._store_checks import check_threads_shared
from helix_temporal.errors import InvalidConfigError
from helix_temporal.maintenance import MaintenancePlan, ensure_schedules, maintenance_queue
from helix_temporal.settings import Settings
from helix_temporal.slots import DrainedActivities
from helix_temporal.worker import end_on_sigterm, prepare_worker, startup_line, stop_on_signals


def _interval_option(what: str) -> object:
    return typer.Option(metavar="SECONDS", help=f"How often to {what}.")


def maintenance(
    *,
    sweep: Annotated[float, _interval_option("archive what sessions left in the hot tier")] = 60,
    evict: Annotated[float, _interval_option("also drop it there")] = 3600,
    keep: Annotated[float, _interval_option("compact and clear the archive")] = 86400,
    cleanup: Annotated[
        float, _interval_option("end sessions past their time, and forget old operations")
    ] = 3600,
    wake: Annotated[float, _interval_option("start sessions that nobody answered in time")] = 60,
    audit: Annotated[
        bool, typer.Option("--audit", help="Verify a thirtieth of the archive each day.")
    ] = False,
    delete_after: Annotated[
        float | None,
        typer.Option(
            metavar="DAYS",
            help="Delete sessions unchanged for so long; sub-agents' go with their callers'.",
        ),
    ] = None,
) -> None:
    """Create the Temporal Schedules of maintenance, and serve them until SIGTERM or Ctrl-C.

    One is enough; more do no harm.  Addresses come from HELIX_… variables, the same as the session workers'.
    """
    run_service(
        _serve_maintenance(
            lambda: MaintenancePlan(
                sweep=timedelta(seconds=sweep),
                evict=timedelta(seconds=evict),
                keep=timedelta(seconds=keep),
                audit=audit,
                cleanup=timedelta(seconds=cleanup),
                delete_after=timedelta(days=delete_after) if delete_after else None,
                wake=timedelta(seconds=wake),
            )
        )
    )


async def _serve_maintenance(make_plan: Callable[[], MaintenancePlan]) -> DrainedActivities:
    end_on_sigterm()
    settings, plan = Settings.from_env(os.environ), make_plan()
    check_threads_shared(settings)
    queue = maintenance_queue(settings.task_queue)
    async with prepare_worker(settings, task_queue=queue) as (client, worker):
        # Before it serves: what is refused here ends the command at once, without a drain.
        names = await _make_schedules(client, settings, plan)
        stop = stop_on_signals()
        async with worker:
            print(startup_line(settings), flush=True)
            print(f"Keeping {settings.temporal_address}, task queue {queue!r}", flush=True)
            print(f"  schedules: {', '.join(names)}", flush=True)
            await stop.wait()
    return worker.drained


async def _make_schedules(client: Client, settings: Settings, plan: MaintenancePlan) -> list[str]:
    """Make the schedules, or bring them up to date.

    Raises:
        InvalidConfigError: Temporal refuses them.
    """
    try:
        return list(await ensure_schedules(client, settings.task_queue, plan))
    except RPCError as error:
        raise InvalidConfigError(
            f"Temporal refused the schedules of maintenance: {error.status.name}: {error.message}; this "
            "worker's key has to be allowed to make them"
        ) from error
