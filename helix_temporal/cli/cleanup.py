"""``helix-temporal cleanup``: what the maintenance worker's schedule does, once and from here."""

import asyncio
import math
import os
from collections.abc import Sequence
from typing import Annotated

import typer
from temporalio.client import Client

from helix_temporal.activities.executions import TemporalExecutions
from helix_temporal.backends import Backends
from helix_temporal.cli._output import AsJson, print_note, print_output, print_warning
from helix_temporal.cli._store_checks import check_session_store
from helix_temporal.cli.outputs import CleanupReport
from helix_temporal.cli.statuses import ExitStatus
from helix_temporal.errors import InvalidConfigError, StoreUnavailableError
from helix_temporal.models.maintenance import (
    DAY_MS,
    AgeCleanupSummary,
    CleanupError,
    CleanUpExpiredInput,
    CleanupInput,
    CleanUpOldInput,
    CleanupSummary,
    PurgeOperationsInput,
)
from helix_temporal.settings import Settings
from helix_temporal.stores.cleanup import Cleanup, Report
from helix_temporal.worker import connect_without_metrics

Row = tuple[str, int]


Expired = Annotated[bool, typer.Option("--expired", help="End sessions that are past their time.")]
OlderThan = Annotated[
    float | None,
    typer.Option(
        metavar="DAYS",
        help="Delete sessions that nobody has changed for so long, and threads; sub-agents' go with their"
        " callers'.",
    ),
]
Operations = Annotated[
    bool, typer.Option("--operations", help="Forget operations that are older than a week.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; count.")]
WithoutTemporal = Annotated[
    bool,
    typer.Option(
        "--without-temporal", help="No workflow runs these sessions: do not ask Temporal whether one does."
    ),
]


def cleanup(
    *,
    expired: Expired = False,
    older_than: OlderThan = None,
    operations: Operations = False,
    dry_run: DryRun = False,
    without_temporal: WithoutTemporal = False,
    as_json: AsJson = False,
) -> None:
    """Clean up the session store; without options, what the schedule does: --expired and --operations.

    Sessions are looked at and changed one by one, under their versions: who uses one meanwhile keeps it.
    One that a workflow runs is asked to end if it is past its time, and is neither marked nor deleted.
    Exit status 3 if one of them failed, which is named.
    """
    if not (expired or operations or older_than is not None):
        expired = operations = True
    wanted = CleanupInput(
        expired=CleanUpExpiredInput(dry_run=dry_run) if expired else None,
        operations=PurgeOperationsInput() if operations else None,
    )
    if older_than is not None:
        wanted = wanted.model_copy(update={"old": _by_age(older_than, dry_run=dry_run)})
    settings = Settings.from_env(os.environ)
    report = asyncio.run(_clean_up(settings, wanted, dry_run=dry_run, asks_temporal=not without_temporal))
    print_output(report, _show_report, as_json=as_json)
    done = [each for each in (report.expired, report.old) if each is not None]
    for each in done:
        _name_errors(each.errors, each.error_count)
    if any(each.error_count for each in done):
        raise typer.Exit(ExitStatus.PARTLY)


def _by_age(days: float, *, dry_run: bool) -> CleanUpOldInput:
    milliseconds = days * DAY_MS
    if not 1000 <= milliseconds < math.inf:
        raise InvalidConfigError(f"--older-than: {days} days; at least a second expected")
    return CleanUpOldInput(max_age_ms=int(milliseconds), dry_run=dry_run)


async def _clean_up(
    settings: Settings, wanted: CleanupInput, *, dry_run: bool, asks_temporal: bool
) -> CleanupReport:
    check_session_store(settings)
    backends = Backends(settings)
    try:
        executions = _temporal_executions(settings) if asks_temporal else None
        work = Cleanup(backends.sessions, backends.workspaces, executions)
        ended = old = forgotten = None
        if wanted.expired is not None:
            ended = await work.clean_up_expired(wanted.expired, _report_expired())
        if wanted.old is not None:
            old = await work.clean_up_old(wanted.old, _report_old)
        if wanted.operations is not None and dry_run:
            print_note("operations: not counted, a dry run changes nothing")
        elif wanted.operations is not None:
            forgotten = await work.forget_operations(wanted.operations.older_than_ms)
        return CleanupReport(dry_run=dry_run, expired=ended, old=old, operations_forgotten=forgotten)
    finally:
        await backends.close()


def _temporal_executions(settings: Settings) -> TemporalExecutions:
    lock, connected = asyncio.Lock(), list[Client]()

    async def connect_once() -> Client:
        async with lock:
            if not connected:
                connected.append(await _connect_client(settings))
        return connected[0]

    return TemporalExecutions(
        connect_once,
        deployment=settings.deployment,
        also_known_as=settings.also_known_as,
    )


async def _connect_client(settings: Settings) -> Client:
    try:
        return (await connect_without_metrics(settings))[0]
    except StoreUnavailableError as error:
        raise StoreUnavailableError(
            f"{error}; the clean-up asks it which sessions run: set HELIX_TEMPORAL_ADDRESS, or give "
            "--without-temporal where no workflow runs sessions of this store"
        ) from error


def _report_expired() -> Report:
    """Says how many were looked at; the clean-up reports more often than that changes."""
    reported: list[int] = []

    def say(_cursor: str | None, summary: CleanupSummary) -> None:
        if reported[-1:] != [summary.detected]:
            reported.append(summary.detected)
            typer.echo(f"  looked at {summary.detected:,} past their time", err=True)

    return say


def _report_old(summary: AgeCleanupSummary) -> None:
    typer.echo(f"  looked at {summary.scanned:,} that are old", err=True)


def _rows_expired(summary: CleanupSummary, *, dry_run: bool) -> list[Row]:
    return [
        ("sessions past their time", summary.detected),
        ("  had finished before", summary.already_terminal),
        ("  used meanwhile, left alone", summary.skipped),
        *([("  would be ended", summary.would_end)] if dry_run else []),
        (f"  run, and {'would be' if dry_run else 'were'} asked to end", summary.running),
        ("  ended now", summary.marked),
        ("workspace snapshots deleted", summary.snapshots_deleted),
    ]


def _rows_old(summary: AgeCleanupSummary, *, dry_run: bool) -> list[Row]:
    return [
        ("old sessions", summary.scanned),
        *([("  would be deleted", summary.would_delete)] if dry_run else []),
        ("  used meanwhile, left alone", summary.changed),
        ("  run, left alone", summary.running),
        ("  deleted", summary.deleted),
        ("workspace snapshots deleted", summary.snapshots_deleted),
    ]


def _show_report(report: CleanupReport) -> None:
    rows: list[Row] = []
    if report.expired is not None:
        rows += _rows_expired(report.expired, dry_run=report.dry_run)
    if report.old is not None:
        rows += _rows_old(report.old, dry_run=report.dry_run)
    if report.operations_forgotten is not None:
        rows.append(("operations forgotten", report.operations_forgotten))
    for name, number in rows:
        typer.echo(f"{name:<32}{number:>10,}")


def _name_errors(errors: Sequence[CleanupError], count: int) -> None:
    for each in errors:
        print_warning(f"{each.session_id}: {each.stage}: {each.message}")
    if count > len(errors):
        print_warning(f"and {count - len(errors):,} more")
