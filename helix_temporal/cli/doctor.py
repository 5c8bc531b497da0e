"""``helix-temporal doctor``: whether stores, clocks, Temporal, workers and maintenance are well."""

import asyncio
import os
from typing import Annotated, Final

import typer

from helix_temporal.cli._output import AsJson, print_output, print_text
from helix_temporal.cli._styles import choose_color
from helix_temporal.cli.statuses import ExitStatus
from helix_temporal.doctor import CheckReport, check_deployment
from helix_temporal.models.visible import make_visible

_COLOURS: Final = {"ok": "green", "warning": "yellow", "failed": "red"}


def doctor(
    *,
    within: Annotated[
        float, typer.Option("--timeout", min=0.1, max=600, metavar="SECONDS", help="For each check.")
    ] = 10.0,
    writes: Annotated[
        bool,
        typer.Option("--write-probe", help="Also try writes, on objects of its own that it removes."),
    ] = False,
    without_temporal: Annotated[
        bool, typer.Option("--without-temporal", help="No workflow runs these sessions: ask no Temporal.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check the deployment that HELIX_… variables name, from this machine; changes nothing.

    Settings, each store (does it answer, its version, rights, tables, memory, clock), the archive and what
    is not archived yet, Temporal and its namespace, who polls the task queues, and the schedules of
    maintenance.  Each check has its own time, and the others go on.  No password is printed.

    Exit statuses: 0 all is well; 3 there are warnings; 1 a check failed; 7 a server does not answer.
    """
    report = asyncio.run(
        check_deployment(os.environ, within=within, writes=writes, temporal=not without_temporal)
    )
    print_output(report, _show_report, as_json=as_json)
    status = _status_of(report)
    if status is not ExitStatus.DONE:
        raise typer.Exit(status)


def _status_of(report: CheckReport) -> ExitStatus:
    if report.away:
        return ExitStatus.STORE_AWAY
    return {"ok": ExitStatus.DONE, "warning": ExitStatus.PARTLY, "failed": ExitStatus.FAILED}[report.status]


def _show_report(report: CheckReport) -> None:
    # Not a table: what is to be done must not be cut.
    width = max(len(f"{each.about}: {each.name}") for each in report.checks)
    for each in report.checks:
        mark = typer.style(f"{each.status:<7}", fg=_COLOURS[each.status])
        place = make_visible(f"{each.about}: {each.name}").ljust(width)
        typer.echo(f"{mark}  {place}  {make_visible(each.says)}", color=choose_color())
    wrong = [each for each in report.checks if each.status != "ok"]
    failed = sum(each.status == "failed" for each in wrong)
    print_text(f"{len(report.checks)} checks, {failed} failed, {len(wrong) - failed} warnings")
