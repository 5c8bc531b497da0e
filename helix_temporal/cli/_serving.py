"""What the commands that serve have in common: log lines, errors in one line, a word at the end."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import typer

from helix_temporal.errors import HelixError


def run_service(service: Coroutine[Any, Any, None]) -> None:
    """Run until it ends by itself, on SIGTERM or Ctrl-C; status 1 and one line for an error of ours."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        asyncio.run(service)
    except HelixError as error:
        typer.secho(f"{type(error).__name__}: {error}", fg="red", err=True)
        raise typer.Exit(1) from None
    # Standard output of a container is a pipe: without flushing nothing is seen of it for long.
    print("Stopped: what was running has finished.", flush=True)
