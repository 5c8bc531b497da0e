"""``helix-temporal sweep``: archive once what is hot, without Temporal."""

import asyncio
import os
from typing import Annotated

import typer

from helix_temporal.backends import Backends
from helix_temporal.cli._errors import exit_on_error
from helix_temporal.cli._running import check_stores_shared
from helix_temporal.models.maintenance import SweepResult
from helix_temporal.settings import Settings


def sweep(
    *,
    evict: Annotated[
        bool, typer.Option("--evict", help="Also drop from the hot tier what is archived.")
    ] = False,
) -> None:
    """Archive all hot threads once, as the maintenance worker does each minute; asks no Temporal.

    For programs whose sessions no workflow runs: call it from a timer.  Addresses come from HELIX_…
    variables, the same as the programs'.  Exit status 1 if a thread could not be archived.
    """
    with exit_on_error():
        found = asyncio.run(_sweep_once(Settings.from_env(os.environ), evict=evict))
    for name in ("seen", "archived", "clean", "gone", "failures"):
        typer.echo(f"{name:<32}{getattr(found, name):>10,}")
    for thread_id in found.failed:
        typer.secho(f"{thread_id}: not archived", fg="red", err=True)
    if found.failures:
        raise typer.Exit(1)


async def _sweep_once(settings: Settings, *, evict: bool) -> SweepResult:
    check_stores_shared(settings)
    backends = Backends(settings)
    try:
        return await backends.sweep(evict=evict)
    finally:
        await backends.close()
