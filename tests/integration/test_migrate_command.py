"""``helix-temporal migrate`` on a real database."""

import asyncio

import pytest
from typer.testing import CliRunner, Result

from helix_temporal.cli.commands import app
from helix_temporal.cli.outputs import MigrationReport
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.postgres.migrations import load_migrations
from tests._pgbouncer import pgbouncer

LATEST = load_migrations()[-1].version


@pytest.fixture
def variables(postgres_dsn: str, table_prefix: str) -> dict[str, str]:
    """A database without tables of this prefix."""
    return {"HELIX_POSTGRES_DSN": postgres_dsn, "HELIX_TABLE_PREFIX": table_prefix}


def migrate(variables: dict[str, str], *arguments: str) -> Result:
    return CliRunner().invoke(app, ["migrate", *arguments], env=variables)


def test_it_says_each_version_and_where_the_tables_are(variables: dict[str, str]) -> None:
    """A long migration shows where it is; a second run shows that there was nothing to do."""
    first, again = migrate(variables), migrate(variables)
    assert (first.exit_code, again.exit_code) == (0, 0)
    assert first.output.splitlines()[:2] == ["  V1 base tables", "  V2 remote sub sessions"]
    assert f"version {LATEST}, {LATEST} applied" in first.output
    assert f"version {LATEST}, nothing applied" in again.output


def test_a_check_fails_while_something_is_pending(variables: dict[str, str]) -> None:
    """A deployment stops before its workers start; the check itself changes nothing."""
    assert migrate(variables, "--target", "2").exit_code == 0
    before, again = migrate(variables, "--check"), migrate(variables, "--check")
    migrate(variables)
    after = migrate(variables, "--check")
    assert [before.exit_code, again.exit_code, after.exit_code] == [1, 1, 0]
    assert f"version 2, {LATEST - 2} pending" in before.output
    assert f"version {LATEST}, 0 pending" in after.output


def test_the_sql_is_what_an_administrator_runs(variables: dict[str, str]) -> None:
    """Where a program may not change tables: printed, sent by hand, and then nothing is pending."""
    printed = migrate(variables, "--sql")
    assert printed.exit_code == 0
    assert migrate(variables, "--check").exit_code == 1
    asyncio.run(_run(variables, printed.output))
    assert migrate(variables, "--check").exit_code == 0
    assert migrate(variables, "--sql").output == "-- nothing is pending\n"


@pytest.mark.parametrize(
    ("changes", "error", "status"),
    [
        ({"HELIX_POSTGRES_DSN": ""}, "InvalidConfigError: postgres_dsn is not set", 2),
        ({"HELIX_TABLE_PREFIX": 'x"; DROP TABLE s;--'}, "InvalidConfigError: table_prefix", 2),
        (
            {"HELIX_POSTGRES_DSN": "postgresql://u:hunter2@127.0.0.1:1/db"},
            "StoreUnavailableError: PostgreSQL at",
            7,
        ),
    ],
)
def test_what_is_wrong_is_one_line(
    variables: dict[str, str], changes: dict[str, str], error: str, status: int
) -> None:
    """No stack trace, and no password, in the log of a deployment."""
    failed = migrate({**variables, **changes})
    assert failed.exit_code == status
    assert error in failed.output
    assert "hunter2" not in failed.output
    assert len(failed.output.splitlines()) == 1


@pytest.mark.parametrize("arguments", [(), ("--check",), ("--sql",)])
def test_a_pooler_in_statement_mode_is_refused(variables: dict[str, str], arguments: tuple[str, ...]) -> None:
    """With the words of a worker's start: it takes no transaction, so nothing would be migrated."""
    with pgbouncer(variables["HELIX_POSTGRES_DSN"], "statement") as dsn:
        failed = migrate({**variables, "HELIX_POSTGRES_DSN": dsn}, *arguments)
    assert failed.exit_code == 2
    assert "InvalidConfigError: PostgreSQL at" in failed.output
    assert "a pooler in statement mode stands between; set its pool_mode to" in failed.output


def test_a_pooler_that_loses_prepared_statements_is_refused(variables: dict[str, str]) -> None:
    """Workers with these settings would not start either."""
    with pgbouncer(variables["HELIX_POSTGRES_DSN"]) as dsn:
        pooled = {**variables, "HELIX_POSTGRES_DSN": dsn}
        refused = migrate({**pooled, "HELIX_POSTGRES_STATEMENT_CACHE_SIZE": "256"})
        taken = migrate(pooled)
    assert refused.exit_code == 2
    assert "HELIX_POSTGRES_STATEMENT_CACHE_SIZE" in refused.output
    assert taken.exit_code == 0


def test_a_target_that_is_not_there_is_refused(variables: dict[str, str]) -> None:
    """With the versions that there are."""
    failed = migrate(variables, "--target", "999")
    assert failed.exit_code == 1
    assert f"there are versions 1 to {LATEST}" in failed.output


async def _run(variables: dict[str, str], script: str) -> None:
    backend = PostgresBackend(variables["HELIX_POSTGRES_DSN"], table_prefix=variables["HELIX_TABLE_PREFIX"])
    await backend.database.execute(script)
    await backend.close()


def test_each_deployment_has_tables_of_its_own(postgres_dsn: str, unique: str) -> None:
    """The name is enough: what one has migrated the other has not."""
    first, second = ({"HELIX_POSTGRES_DSN": postgres_dsn, "HELIX_NAME": f"{unique}-{n}"} for n in "ab")
    assert migrate(first).exit_code == 0
    assert f"tables __{unique}_a_agents_*" in migrate(first, "--check").output
    assert migrate(second, "--check").exit_code == 1


def test_with_json_the_versions_are_data(variables: dict[str, str]) -> None:
    """A pipeline reads what is pending, and what was applied."""
    pending = MigrationReport.model_validate_json(migrate(variables, "--check", "--json").stdout)
    applied = MigrationReport.model_validate_json(migrate(variables, "--json").stdout)
    assert pending.pending == applied.applied
    assert (pending.version, applied.version, len(applied.applied)) == (0, LATEST, LATEST)
