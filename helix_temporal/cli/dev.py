"""``helix-temporal dev``: the whole stack on this machine until Ctrl-C."""

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer

from helix_temporal.cli._styles import echo_styled
from helix_temporal.devstack import SERVICES, DevStackError, Ports, Stack, start_stack
from helix_temporal.devstack.stack import given_endpoint
from helix_temporal.errors import HelixError
from helix_temporal.settings import Settings
from helix_temporal.stores.postgres import PostgresBackend

# The same at each start where they are free, so that exported variables stay true.
_PREFERRED: Final = Ports(temporal=7233, ui=8233, redis=16379, postgres=15432, s3=18333)
_STORES: Final = {"postgres", "redis"}
"""Services that sessions can be read from."""
_LOOK_EVERY_SECONDS: Final = 1.0


def _port_option(what: str) -> object:
    return typer.Option(
        metavar="PORT", help=f"Port of {what}; by default a fixed one, or a free one if that is in use."
    )


def dev(
    services: Annotated[
        list[str] | None, typer.Argument(help=f"Some of {', '.join(sorted(SERVICES))}; all by default.")
    ] = None,
    *,
    data: Annotated[
        Path | None, typer.Option(help="Keep the data in this directory; by default they go at the end.")
    ] = None,
    temporal_port: Annotated[int | None, _port_option("Temporal")] = None,
    ui_port: Annotated[int | None, _port_option("Temporal's UI")] = None,
    redis_port: Annotated[int | None, _port_option("Valkey")] = None,
    postgres_port: Annotated[int | None, _port_option("PostgreSQL")] = None,
    s3_port: Annotated[int | None, _port_option("S3")] = None,
    run: Annotated[
        str | None,
        typer.Option(
            help="Run this program with the stack's environment, then stop and give its status; there is no "
            "shell in between (name one: sh -c '…')."
        ),
    ] = None,
) -> None:
    """Start Temporal with its UI, PostgreSQL, Valkey and S3, and stop them at Ctrl-C.

    Servers named by HELIX_TEMPORAL_ADDRESS, HELIX_REDIS_URL, HELIX_POSTGRES_DSN or HELIX_S3_ENDPOINT are
    used instead.
    """
    wanted = frozenset(services or SERVICES)
    if unknown := sorted(wanted.difference(SERVICES)):
        raise typer.BadParameter(f"{', '.join(unknown)}: one of {', '.join(sorted(SERVICES))} expected")
    asked = Ports(temporal_port, ui_port, redis_port, postgres_port, s3_port)
    started = time.monotonic()
    try:
        starting = frozenset(name for name in wanted if given_endpoint(name, os.environ) is None)
        if starting:
            typer.echo(f"Starting {', '.join(sorted(starting))} …")
        with (
            _stopped_by_signals(),
            start_stack(
                wanted,
                directory=data,
                ports=asked.choose_ports(_PREFERRED),
                environment=os.environ,
                on_ready=lambda name, seconds: _say_ready(name, seconds) if name in starting else None,
            ) as stack,
        ):
            if "postgres" in wanted:
                asyncio.run(_make_tables(stack))
            if run is not None:
                raise typer.Exit(_run_command(stack, run))
            _say_where(stack, wanted, time.monotonic() - started)
            if starting:
                typer.echo("\nCtrl-C stops everything.")
                _watch_servers(stack)
    except KeyboardInterrupt:
        typer.echo("\nStopped." if data is None else f"\nStopped; the data are in {data}.")
    except (DevStackError, HelixError) as error:
        echo_styled(f"\n{error}", fg="red", err=True)
        raise typer.Exit(1) from None


async def _make_tables(stack: Stack) -> None:
    """The tables of the version that is installed, so that a worker may start at once."""
    settings = Settings.from_env({**os.environ, **stack.get_environment(), "HELIX_ALLOW_PLAINTEXT": "true"})
    backend = PostgresBackend(settings.postgres_dsn or "", table_prefix=settings.table_prefix)
    try:
        result = await backend.migrations.run()
    finally:
        await backend.close()
    typer.echo(f"  {'tables':<10} version {result.current}")


def _say_ready(service: str, seconds: float) -> None:
    typer.echo(f"  {service:<10} ready after {seconds:.1f} s")


def _say_where(stack: Stack, services: frozenset[str], seconds: float) -> None:
    if stack.servers:
        typer.echo(f"Ready in {seconds:.1f} s; data and logs in {stack.directory}\n")
    else:
        typer.echo("Nothing to start.\n")
    given = ", ".join(sorted(services - stack.servers.keys()))
    if given:
        typer.echo(f"  Named by the environment, neither started nor stopped here: {given}\n")
    if "temporal" in services and stack.temporal.ui_url:
        typer.echo(f"  Temporal's UI: {stack.temporal.ui_url}\n")
    typer.echo("For another terminal:\n")
    for name, value in stack.get_environment().items():
        typer.echo(f"  export {name}={shlex.quote(value)}")
    if services & _STORES:
        typer.echo(
            "\nWith these, `helix-temporal inspect --open` (extra `inspector`) shows sessions in a browser."
        )


def _run_command(stack: Stack, command: str) -> int:
    """Run a command beside the stack; its exit status, 128 + n if signal n ended it, as a shell says."""
    environment = {**os.environ, **stack.get_environment(), "HELIX_ALLOW_PLAINTEXT": "true"}
    typer.echo("")
    process = subprocess.Popen(shlex.split(command), env=environment)  # noqa: S603 (the caller's own)
    try:
        status = process.wait()
    except KeyboardInterrupt as stopped:
        # Ctrl-C reaches all processes of a terminal; a worker takes a second signal for "at once".
        if stopped.args != (signal.SIGINT,) or not sys.stdin.isatty():
            process.send_signal(signal.SIGINT)
        process.wait()
        raise
    return status if status >= 0 else 128 - status


def _watch_servers(stack: Stack) -> NoReturn:
    while True:
        time.sleep(_LOOK_EVERY_SECONDS)
        for server in stack.servers.values():
            if server.has_ended:
                raise DevStackError(
                    f"{server.name} has ended by itself, so all were stopped; the end of its log:\n"
                    f"{server.read_log_end()}"
                )


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """SIGTERM and a closed terminal stop the stack as Ctrl-C does."""

    def interrupt(number: int, _frame: object) -> NoReturn:
        raise KeyboardInterrupt(number)

    # SIGINT by name, too: a process started in the background of a script inherits that it is ignored.
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
