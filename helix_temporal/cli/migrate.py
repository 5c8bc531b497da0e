"""``helix-temporal migrate``: bring the tables in PostgreSQL to the newest version."""

import asyncio
import os
from typing import Annotated

import typer

from helix_temporal.cli._errors import exit_on_error
from helix_temporal.errors import InvalidConfigError
from helix_temporal.settings import Settings
from helix_temporal.stores.postgres import Migration, PostgresBackend, PostgresMigrations


def migrate(
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit status 1 if something is pending.")
    ] = False,
    sql: Annotated[bool, typer.Option("--sql", help="Change nothing; print what would run.")] = False,
    target: Annotated[int | None, typer.Option(help="Stop at this version; by default the newest.")] = None,
) -> None:
    """Apply what is missing, all of it in one transaction or nothing; repeating it does no harm.

    The database is HELIX_POSTGRES_DSN, the start of all tables' names HELIX_TABLE_PREFIX.
    """
    with exit_on_error():
        asyncio.run(_migrate_tables(Settings.from_env(os.environ), target, check=check, sql=sql))


async def _migrate_tables(settings: Settings, target: int | None, *, check: bool, sql: bool) -> None:
    if settings.postgres_dsn is None:
        raise InvalidConfigError("postgres_dsn is not set; set HELIX_POSTGRES_DSN")
    backend = PostgresBackend(
        settings.postgres_dsn,
        table_prefix=settings.table_prefix,
        statement_cache_size=settings.postgres_statement_cache_size,
    )
    try:
        await backend.check_pooler()
        migrations = backend.migrations
        if sql:
            pending = await migrations.pending(target)
            typer.echo(migrations.script(pending) if pending else "-- nothing is pending")
        elif check:
            await _check_pending(migrations, settings.table_prefix, target)
        else:
            result = await migrations.run(target=target, on_start=_print_migration)
            typer.echo(_summary_line(settings.table_prefix, result.current, len(result.applied)))
    finally:
        await backend.close()


async def _check_pending(migrations: PostgresMigrations, prefix: str, target: int | None) -> None:
    pending = await migrations.pending(target)
    for migration in pending:
        _print_migration(migration)
    current = await migrations.current_version()
    typer.echo(f"tables {prefix}*: version {current}, {len(pending)} pending")
    if pending:
        raise typer.Exit(1)


def _print_migration(migration: Migration) -> None:
    typer.echo(f"  V{migration.version} {migration.name.replace('_', ' ')}")


def _summary_line(prefix: str, current: int, applied: int) -> str:
    return f"tables {prefix}*: version {current}, {applied or 'nothing'} applied"
