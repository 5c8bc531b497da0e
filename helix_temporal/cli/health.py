"""``helix-temporal health``: what a worker on this machine says of itself."""

import http.client
import os
from typing import Annotated, Literal

import typer

from helix_temporal.cli._running import exit_on_error
from helix_temporal.errors import InvalidConfigError
from helix_temporal.settings import Settings

_SECONDS = 10.0
_PATHS = {"ready": "/readyz", "live": "/livez", "started": "/startupz"}


def health(
    probe: Annotated[
        Literal["ready", "live", "started"], typer.Argument(help="Which probe to ask.")
    ] = "ready",
    port: Annotated[
        int | None, typer.Option(help="By default HELIX_HEALTH_PORT.", show_default=False)
    ] = None,
) -> None:
    """Ask the worker on this machine how it is: exit status 0 if well, 1 if not, with what is wrong.

    ready: it polls its task queue, its stores answer, and it does not drain.  live: its event loop turns.
    started: its stores passed their check.
    """
    with exit_on_error():
        port = Settings.from_env(os.environ).health_port if port is None else port
        if port is None:
            raise InvalidConfigError("there is no port to ask; set HELIX_HEALTH_PORT, or give --port")
    try:
        status, body = _ask(port, _PATHS[probe])
    except (OSError, http.client.HTTPException) as error:
        typer.echo(f"no answer on port {port}: {type(error).__name__}")
        raise typer.Exit(1) from None
    typer.echo(body)
    raise typer.Exit(0 if status == http.HTTPStatus.OK else 1)


def _ask(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()
