"""All commands of ``helix-temporal``."""

from importlib.metadata import version
from typing import Annotated

import typer

from helix_temporal.cli import telemetry, thread
from helix_temporal.cli.cleanup import cleanup
from helix_temporal.cli.dev import dev
from helix_temporal.cli.health import health
from helix_temporal.cli.maintenance import maintenance
from helix_temporal.cli.migrate import migrate
from helix_temporal.cli.sweep import sweep
from helix_temporal.cli.worker import worker

app = typer.Typer(
    name="helix-temporal",
    help="Durable conversation threads and sessions for agents on Temporal.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command()(cleanup)
app.command()(dev)
app.command()(health)
app.command()(maintenance)
app.command()(migrate)
app.command()(sweep)
app.command()(worker)
app.add_typer(telemetry.app, name="telemetry")
app.add_typer(thread.app, name="thread")


@app.callback(invoke_without_command=True)
def helix_temporal(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Durable conversation threads and sessions for agents on Temporal."""
    if show_version:
        typer.echo(version("helix-temporal"))
        raise typer.Exit
