"""``helix-temporal cleanup``: what the maintenance worker's schedule does, once and from here."""

import asyncio
import os
from collections.abc import Sequence
from typing import Annotated

import typer
from temporalio.client import Client

from helix_temporal.activities.executions import TemporalExecutions
from helix_temporal.backends import Backends
from helix_temporal.cli._errors import exit_on_error
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
from helix_temporal.worker import connect

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
) -> None:
    """Clean up the session store; without options, what the schedule does: --expired and --operations.

    Sessions are looked at and changed one by one, under their versions: who uses one meanwhile keeps it.
    One that a workflow runs is asked to end if it is past its time, and is neither marked nor deleted.
    Exit status 1 if one of them failed.
    """
    if not (expired or operations or older_than is not None):
        expired = operations = True
    wanted = CleanupInput(
        expired=CleanUpExpiredInput(dry_run=dry_run) if expired else None,
        operations=PurgeOperationsInput() if operations else None,
    )
    with exit_on_error():
        if older_than is not None:
            wanted = wanted.model_copy(update={"old": _by_age(older_than, dry_run=dry_run)})
        settings = Settings.from_env(os.environ)
        errors = asyncio.run(_clean_up(settings, wanted, dry_run=dry_run, asks_temporal=not without_temporal))
    if errors:
        raise typer.Exit(1)


def _by_age(days: float, *, dry_run: bool) -> CleanUpOldInput:
    milliseconds = int(days * DAY_MS)
    if milliseconds < 1000:
        raise InvalidConfigError(f"--older-than: {days} days; at least a second expected")
    return CleanUpOldInput(max_age_ms=milliseconds, dry_run=dry_run)


async def _clean_up(settings: Settings, wanted: CleanupInput, *, dry_run: bool, asks_temporal: bool) -> int:
    backends = Backends(settings)
    try:
        if not backends.keeps_sessions or settings.state_in == "memory":
            raise InvalidConfigError(
                "there is no session store that this command can reach;"
                " set HELIX_POSTGRES_DSN, HELIX_REDIS_URL or HELIX_DATA_DIRECTORY"
            )
        executions = _temporal_executions(settings) if asks_temporal else None
        work = Cleanup(backends.sessions, backends.workspaces, executions)
        errors = 0
        if wanted.expired is not None:
            ended = await work.clean_up_expired(wanted.expired, _report_expired())
            errors += _print_rows(_rows_expired(ended, dry_run=dry_run), ended.errors, ended.error_count)
        if wanted.old is not None:
            old = await work.clean_up_old(wanted.old, _report_old)
            errors += _print_rows(_rows_old(old, dry_run=dry_run), old.errors, old.error_count)
        if wanted.operations is not None:
            if dry_run:
                typer.echo("operations: not counted, a dry run changes nothing")
            else:
                forgotten = await work.forget_operations(wanted.operations.older_than_ms)
                _print_rows([("operations forgotten", forgotten)])
        return errors
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
    # This command gives out no metrics: their address is that of a worker on this machine.
    quiet = settings.model_copy(update={"metrics_prometheus": None, "metrics_otlp": None})
    try:
        return (await connect(quiet))[0]
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


def _print_rows(rows: Sequence[Row], errors: Sequence[CleanupError] = (), error_count: int = 0) -> int:
    for name, number in rows:
        typer.echo(f"{name:<32}{number:>10,}")
    for each in errors:
        typer.secho(f"{each.session_id}: {each.stage}: {each.message}", fg="red", err=True)
    if error_count > len(errors):
        typer.secho(f"and {error_count - len(errors):,} more", fg="red", err=True)
    return error_count
