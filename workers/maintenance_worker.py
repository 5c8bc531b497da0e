"""The janitor: archives what sessions left behind, and keeps the archive small; until SIGTERM or Ctrl-C.

Creates its Temporal Schedules and serves their workflows on a task queue of its own.  Addresses come from
``HELIX_…`` variables (docs/settings.md), the same as the session workers'.  One is enough; more do no harm.
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
from datetime import timedelta

from helix_temporal.errors import HelixError
from helix_temporal.janitor import JanitorPlan, ensure_schedules, maintenance_queue
from helix_temporal.settings import Settings
from helix_temporal.worker import HelixWorker, connect


def plan(arguments: argparse.Namespace) -> JanitorPlan:
    """The intervals that were given."""
    return JanitorPlan(
        sweep=timedelta(seconds=arguments.sweep),
        evict=timedelta(seconds=arguments.evict),
        keep=timedelta(seconds=arguments.keep),
        audit=arguments.audit,
        cleanup=timedelta(seconds=arguments.cleanup),
        delete_after=timedelta(days=arguments.delete_after) if arguments.delete_after else None,
        wake=timedelta(seconds=arguments.wake),
    )


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, seconds, what in (
        ("sweep", 60, "archive what sessions left in the hot tier"),
        ("evict", 3600, "also drop it there"),
        ("keep", 86400, "compact and clear the archive"),
        ("cleanup", 3600, "end sessions past their time, forget old operations"),
        ("wake", 60, "start sessions that nobody answered in time"),
    ):
        parser.add_argument(
            f"--{name}", type=float, default=seconds, metavar="SECONDS", help=f"{what}; {seconds} by default"
        )
    parser.add_argument("--audit", action="store_true", help="verify the whole archive each time it is kept")
    parser.add_argument(
        "--delete-after", type=float, metavar="DAYS", help="delete sessions unchanged for so long"
    )
    return parser.parse_args()


async def serve(settings: Settings, janitor: JanitorPlan) -> None:
    """Create the schedules, then serve until told to stop."""
    queue = maintenance_queue(settings.task_queue)
    client, helix = await connect(settings)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with HelixWorker(client, helix, task_queue=queue):
        names = await ensure_schedules(client, settings.task_queue, janitor)
        print(f"Keeping {settings.temporal_address}, task queue {queue!r}", flush=True)
        print(f"  schedules: {', '.join(names)}", flush=True)
        await stop.wait()


def main() -> None:
    """Serve until told to stop; a wrong setting or a server that would lose data ends it with status 1."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        asyncio.run(serve(Settings.from_env(os.environ), plan(parse())))
    except HelixError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    print("Stopped: what was running has finished.", flush=True)


if __name__ == "__main__":
    main()
