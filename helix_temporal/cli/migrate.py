"""``helix-temporal migrate``: bring the tables in PostgreSQL to the newest version."""

import asyncio
import os
from typing import Annotated, NamedTuple

import typer

from helix_temporal.cli._output import AsJson, print_output
from helix_temporal.cli.outputs import MigrationReport, TableVersion
from helix_temporal.cli.statuses import ExitStatus
from helix_temporal.errors import InvalidConfigError
from helix_temporal.settings import Settings
from helix_temporal.stores.postgres import Migration, PostgresBackend, PostgresMigrations


def migrate(
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit status 1 if something is pending.")
    ] = False,
    sql: Annotated[bool, typer.Option("--sql", help="Change nothing; print what would run.")] = False,
    target: Annotated[
        int | None, typer.Option(metavar="VERSION", help="Stop at this version; by default the newest.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Apply what is missing, all of it in one transaction or nothing; repeating it does no harm.

    The database is HELIX_POSTGRES_DSN, the start of all tables' names HELIX_TABLE_PREFIX.
    """
    wanted = _Wanted(check=check, sql=sql, target=target, shows=not as_json)
    report = asyncio.run(_migrate_tables(Settings.from_env(os.environ), wanted))
    print_output(report, _show_report, as_json=as_json)
    if check and report.pending:
        raise typer.Exit(ExitStatus.FAILED)


class _Wanted(NamedTuple):
    """What is asked for; ``shows`` says each migration when it begins, which may take long."""

    check: bool
    sql: bool
    target: int | None
    shows: bool


async def _migrate_tables(settings: Settings, wanted: _Wanted) -> MigrationReport:
    if settings.postgres_dsn is None:
        raise InvalidConfigError("postgres_dsn is not set; set HELIX_POSTGRES_DSN")
    backend = PostgresBackend(
        settings.postgres_dsn,
        table_prefix=settings.table_prefix,
        statement_cache_size=settings.postgres_statement_cache_size,
    )
    try:
        await backend.check_pooler()
        return await _run_or_plan(backend.migrations, settings.table_prefix, wanted)
    finally:
        await backend.close()


async def _run_or_plan(migrations: PostgresMigrations, prefix: str, wanted: _Wanted) -> MigrationReport:
    if wanted.sql or wanted.check:
        pending = await migrations.pending(wanted.target)
        return MigrationReport(
            table_prefix=prefix,
            dry_run=True,
            version=await migrations.current_version(),
            pending=tuple(map(_describe_migration, pending)),
            sql=(migrations.script(pending) if pending else "-- nothing is pending") if wanted.sql else None,
        )
    began: dict[int, Migration] = {}

    def begin(migration: Migration) -> None:
        if wanted.shows and migration.version not in began:
            _show_migration(_describe_migration(migration))
        began[migration.version] = migration

    result = await migrations.run(target=wanted.target, on_start=begin)
    applied = tuple(_describe_migration(began[version]) for version in result.applied)
    return MigrationReport(table_prefix=prefix, version=result.current, applied=applied)


def _describe_migration(migration: Migration) -> TableVersion:
    return TableVersion(version=migration.version, name=migration.name.replace("_", " "))


def _show_report(report: MigrationReport) -> None:
    if report.sql is not None:
        typer.echo(report.sql)
        return
    for each in report.pending:
        _show_migration(each)
    done = f"{len(report.applied) or 'nothing'} applied"
    if report.dry_run:
        done = f"{len(report.pending)} pending"
    typer.echo(f"tables {report.table_prefix}*: version {report.version}, {done}")


def _show_migration(migration: TableVersion) -> None:
    typer.echo(f"  V{migration.version} {migration.name}")
