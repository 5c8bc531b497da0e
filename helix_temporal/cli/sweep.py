"""``helix-temporal sweep``: archive once what is hot, without Temporal."""

from typing import Annotated

import typer

from helix_temporal.cli._backends import run_with_backends
from helix_temporal.cli._output import AsJson, print_output, print_warning
from helix_temporal.cli._store_checks import StoreUse
from helix_temporal.cli.statuses import ExitStatus
from helix_temporal.models.maintenance import SweepResult


def sweep(
    *,
    evict: Annotated[
        bool, typer.Option("--evict", help="Also drop from the hot tier what is archived.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Archive all hot threads once, as the maintenance worker does each minute; asks no Temporal.

    For programs whose sessions no workflow runs: call it from a timer.  Addresses come from HELIX_…
    variables, the same as the programs'.  Exit status 3 if a thread could not be archived, which is named.
    """
    found = run_with_backends(lambda backends: backends.sweep(evict=evict), StoreUse.HOT_THREADS)
    print_output(found, _show_counts, as_json=as_json)
    for thread_id in found.failed:
        print_warning(f"{thread_id}: not archived")
    if found.failures:
        raise typer.Exit(ExitStatus.PARTLY)


def _show_counts(found: SweepResult) -> None:
    for name in ("seen", "archived", "clean", "gone", "failures"):
        typer.echo(f"{name:<32}{getattr(found, name):>10,}")
