"""How commands run: errors of ours in one line, status 1, and log lines of those that serve."""

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import typer

from helix_temporal.errors import HelixError, InvalidConfigError
from helix_temporal.health import DrainedActivities
from helix_temporal.settings import Settings


@contextmanager
def exit_on_error() -> Iterator[None]:
    """End the command with status 1 and one line where an error of ours is raised."""
    try:
        yield
    except HelixError as error:
        typer.secho(f"{type(error).__name__}: {error}", fg="red", err=True)
        raise typer.Exit(1) from None


def check_stores_shared(settings: Settings) -> None:
    """Refuse to look for threads, or to keep them, in this process's own memory.

    Raises:
        InvalidConfigError: No store is named that other processes have, too.
    """
    if settings.threads_in == "memory" and not settings.has_cold_tier:
        raise InvalidConfigError(
            "there is no store of threads that this command can reach; set what the session workers have of "
            "HELIX_REDIS_URL, HELIX_POSTGRES_DSN, HELIX_DATA_DIRECTORY, HELIX_S3_BUCKET, HELIX_COLD_DIRECTORY"
        )


def run_service(service: Coroutine[Any, Any, DrainedActivities]) -> None:
    """Run until it ends by itself, on SIGTERM or Ctrl-C; then say how the activities ended that still ran."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    with exit_on_error():
        drained = asyncio.run(service)
    # Standard output of a container is a pipe: without flushing nothing is seen of it for long.
    print(f"Stopped: {drained.describe()}.", flush=True)
