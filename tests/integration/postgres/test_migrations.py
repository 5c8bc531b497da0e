"""Versions of the tables: from every older one, by many at once, all or nothing."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from helix_temporal.errors import (
    InvalidConfigError,
    MigrationError,
    SchemaVersionError,
    UnsupportedServerError,
)
from helix_temporal.models.states import SessionState
from helix_temporal.models.store_calls import SessionQuery, SessionSummary
from helix_temporal.stores.postgres import (
    AsyncpgDatabase,
    Migration,
    MigrationResult,
    PostgresMigrations,
    PostgresUsage,
)
from helix_temporal.stores.postgres.migrations import load_migrations
from helix_temporal.stores.postgres.sessions import PostgresSessions
from helix_temporal.stores.protocols.session_rows import (
    RowKind,
    RowsCommitted,
    SessionCommit,
    SessionRow,
    WantedRows,
)
from helix_temporal.testing.contracts._usage_base import some_tokens

LATEST = load_migrations()[-1].version
ALL = tuple(range(1, LATEST + 1))

_PROCESSES = """
import asyncio, os, sys
from helix_temporal.stores.postgres import AsyncpgDatabase, PostgresMigrations
async def migrated(dsn, prefix):
    database = AsyncpgDatabase.from_dsn(dsn, timeout=60)
    await database.fetchval("SELECT 1")
    os.write(ready, b".")
    os.read(gate, 1)
    os.write(1, b"%d\\n" % len((await PostgresMigrations(database, table_prefix=prefix).run()).applied))
    await database.close()
count, dsn, prefix = int(sys.argv[1]), *sys.argv[2:]
(told, ready), (gate, opens) = os.pipe(), os.pipe()
for _ in range(count):
    if os.fork() == 0:
        os.close(opens)
        asyncio.run(migrated(dsn, prefix))
        os._exit(0)
waiting = count
while waiting:
    waiting -= len(os.read(told, waiting))
os.close(opens)
for _ in range(count):
    os.wait()
"""
"""Processes that are forked off, connect, and migrate at once as soon as all of them have."""


_BEFORE: dict[str, dict[str, Any]] = {
    "checkpoints": {"id": "c", "run_id": "r", "step_id": "p", "seq": 3, "body": None},
    "staging": {"step_id": "p", "tool_call_id": "é", "seq": 4, "body": None},
    "runs": {"run_id": "r", "turn": 5, "status": "done", "completion_reason": "end", "body": None},
    "sub_session_refs": {"sub_session_id": "child", "seq": 6, "remote_json": "{}", "body": None},
}
"""A row of each table of a session's rows that version 7 has, but its session and its bytes."""

_AFTER = (
    SessionRow(RowKind.CHECKPOINT, "c", b"\x00\xff", order=3),
    SessionRow(RowKind.STAGED, "é", b"\x00\xff", group="p", order=4),
    SessionRow(RowKind.RUN, "r", b"\x00\xff", order=5),
    SessionRow(RowKind.REF, "child", b"\x00\xff", order=6),
)


@pytest.fixture
async def database(postgres_dsn: str) -> AsyncIterator[AsyncpgDatabase]:
    """A database."""
    database = AsyncpgDatabase.from_dsn(postgres_dsn, timeout=60)
    yield database
    await database.close()


@pytest.fixture
def migrations(database: AsyncpgDatabase, table_prefix: str) -> PostgresMigrations:
    """Of a prefix without any table."""
    return PostgresMigrations(database, table_prefix=table_prefix)


def test_versions_have_no_gaps() -> None:
    """V1 to V7 mean what was published, ours follow."""
    assert [each.version for each in load_migrations()] == list(ALL)
    assert [each.name for each in load_migrations()[:7]] == [
        "base_tables",
        "remote_sub_sessions",
        "pending_client_tool_calls",
        "root_session",
        "completed_client_tool_calls",
        "mode_and_completion_reason",
        "suspension",
    ]


async def test_an_empty_database_gets_every_version_once(migrations: PostgresMigrations) -> None:
    """And a second run finds nothing to do."""
    assert await migrations.current_version() == 0
    assert await migrations.run() == MigrationResult(ALL, LATEST)
    assert await migrations.run() == MigrationResult((), LATEST)
    assert await migrations.verify() == LATEST


@pytest.mark.parametrize("older", ALL[:-1])
async def test_an_older_version_is_brought_up_with_its_data(
    database: AsyncpgDatabase, migrations: PostgresMigrations, table_prefix: str, older: int
) -> None:
    """Deployments skip releases, and their sessions stay."""
    await migrations.run(target=older)
    await _add_session(database, table_prefix)
    assert await migrations.run() == MigrationResult(ALL[older:], LATEST)
    (row,) = await database.fetch(f'SELECT * FROM "{table_prefix}states"')
    assert (row["session_id"], row["rev"], row["deleted"]) == ("s", 1, False)
    assert (await PostgresSessions(database, table_prefix=table_prefix).view("s")).state == b"{}"


async def test_what_version_7_holds_is_there_afterwards(
    database: AsyncpgDatabase, migrations: PostgresMigrations, table_prefix: str
) -> None:
    """Rows of sessions lie in one table since, bodies have checksums, and a session takes commits."""
    await migrations.run(target=7)
    await _add_session(database, table_prefix, "sé", body='{"é": "\0"}'.encode())
    for table, columns in _BEFORE.items():
        names, places = ", ".join(columns), ", ".join(f"${n}" for n in range(2, len(columns) + 2))
        values = [b"\x00\xff" if name == "body" else value for name, value in columns.items()]
        await database.execute(
            f'INSERT INTO "{table_prefix}{table}" (session_id, {names}) VALUES ($1, {places})', "sé", *values
        )
    await database.execute(
        f'INSERT INTO "{table_prefix}usage_entries" (id, session_id, kind, "timestamp", body)'
        " VALUES ('u', 'sé', 'tokens', 1, $1)",
        some_tokens("sé").model_dump_json().encode(),
    )
    await migrations.run()
    sessions = PostgresSessions(database, table_prefix=table_prefix)
    keys = tuple(each.name for each in _AFTER)
    view = await sessions.view("sé", WantedRows(keys=keys))
    assert (view.revision, view.state) == (1, '{"é": "\0"}'.encode())
    assert view.rows == _AFTER
    assert await PostgresUsage(database, table_prefix=table_prefix).get_entries("sé") == [some_tokens("sé")]
    done = await sessions.commit(SessionCommit("sé", 1, 0, removes=keys))
    assert done == RowsCommitted(2)


async def test_sessions_of_version_7_are_shown_in_lists(
    database: AsyncpgDatabase, migrations: PostgresMigrations, table_prefix: str
) -> None:
    """They have no summary until they are written again; their states tell as much."""
    await migrations.run(target=7)
    state = SessionState(
        session_id="s", metadata={"n": [1.5, None]}, custom_state={"a": 1}, created_at=1, updated_at=2
    )
    await _add_session(database, table_prefix, body=state.model_dump_json().encode())
    await migrations.run()
    sessions = PostgresSessions(database, table_prefix=table_prefix)
    page = await sessions.list_sessions(SessionQuery())
    assert page.sessions == (SessionSummary.of(state),)
    whole = SessionQuery(include=("custom_state",))
    page = await sessions.list_sessions(whole)
    assert page.sessions == (SessionSummary.of(state, whole.include),)


def test_twenty_processes_at_once_apply_each_version_once(postgres_dsn: str, table_prefix: str) -> None:
    """All workers of a deployment start together."""
    command = [sys.executable, "-c", _PROCESSES, "20", postgres_dsn, table_prefix]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    assert sorted(map(int, done.stdout.split())) == [0] * 19 + [LATEST]


async def test_a_migration_that_fails_leaves_nothing(database: AsyncpgDatabase, table_prefix: str) -> None:
    """Not even what was before it in the same run: the old program still fits."""
    broken = Migration(3, "broken", 'CREATE TABLE "{prefix}half" (a INT); SELECT * FROM "{prefix}nothing";')
    migrations = PostgresMigrations(
        database, table_prefix=table_prefix, migrations=[*load_migrations()[:2], broken]
    )
    with pytest.raises(MigrationError, match="V3 broken failed and nothing was changed") as caught:
        await migrations.run()
    assert caught.value.facts["version"] == 3
    assert await migrations.current_version() == 0
    assert await _tables(database, table_prefix) == []


@pytest.mark.parametrize("name", ["migrations", "threads", "states"])
async def test_a_table_of_somebody_else_is_named(
    database: AsyncpgDatabase, migrations: PostgresMigrations, table_prefix: str, name: str
) -> None:
    """It stays as it is, and the message says which setting keeps both apart."""
    await database.execute(f'CREATE TABLE "{table_prefix}{name}" (theirs INT)')
    with pytest.raises(MigrationError, match=f'"{table_prefix}{name}".*HELIX_TABLE_PREFIX'):
        await migrations.run()
    assert await _tables(database, table_prefix) == [f"{table_prefix}{name}"]


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
async def test_a_database_in_another_encoding_gets_no_tables(
    database: AsyncpgDatabase, postgres_dsn: str, unique: str, encoding: str
) -> None:
    """Workers would refuse it afterwards."""
    await database.execute(
        f"CREATE DATABASE {unique} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    )
    other = AsyncpgDatabase.from_dsn(urlsplit(postgres_dsn)._replace(path=f"/{unique}").geturl())
    try:
        with pytest.raises(UnsupportedServerError, match=f"{encoding}, UTF8 needed"):
            await PostgresMigrations(other).run()
        assert await _tables(other, "helix_") == []
    finally:
        await other.close()
        await database.execute(f"DROP DATABASE {unique}")


@pytest.fixture
async def as_user(
    database: AsyncpgDatabase, postgres_dsn: str, unique: str
) -> AsyncIterator[PostgresMigrations]:
    """Of a user and a schema of that name, in which the user has no right but USAGE."""
    await database.execute(
        f"CREATE ROLE {unique} LOGIN; CREATE SCHEMA {unique}; GRANT USAGE ON SCHEMA {unique} TO {unique}"
    )
    parts = urlsplit(postgres_dsn)
    place = parts._replace(netloc=f"{unique}@{parts.hostname}:{parts.port}", query=f"search_path={unique}")
    other = AsyncpgDatabase.from_dsn(place.geturl())
    yield PostgresMigrations(other, table_prefix="own_")
    await other.close()
    await database.execute(f"DROP OWNED BY {unique}; DROP SCHEMA {unique} CASCADE; DROP ROLE {unique}")


async def test_the_right_that_migrations_lack_is_named(as_user: PostgresMigrations, unique: str) -> None:
    """From PostgreSQL 15 on no user but the owner has it in the schema public."""
    with pytest.raises(InvalidConfigError, match=f"GRANT USAGE, CREATE ON SCHEMA {unique} TO"):
        await as_user.run()


async def test_tables_of_another_owner_are_told(
    as_user: PostgresMigrations, database: AsyncpgDatabase, postgres_dsn: str, unique: str
) -> None:
    """Whoever migrated first must go on with it."""
    owner = AsyncpgDatabase.from_dsn(urlsplit(postgres_dsn)._replace(query=f"search_path={unique}").geturl())
    await PostgresMigrations(owner, table_prefix="own_").run(target=2)
    await owner.close()
    await database.execute(f"GRANT CREATE ON SCHEMA {unique} TO {unique}")
    await database.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA {unique} TO {unique}")
    with pytest.raises(MigrationError, match="owner of own_"):
        await as_user.run()


async def test_a_search_path_without_a_schema_is_told(postgres_dsn: str, unique: str) -> None:
    """The address says it, or the role; neither is the fault of the database."""
    place = urlsplit(postgres_dsn)._replace(query=f"search_path={unique}").geturl()
    database = AsyncpgDatabase.from_dsn(place)
    with pytest.raises(InvalidConfigError, match="search_path"):
        await PostgresMigrations(database).run()
    await database.close()


async def test_an_edited_migration_is_refused(database: AsyncpgDatabase, table_prefix: str) -> None:
    """Two databases of the same version would differ."""
    await PostgresMigrations(database, table_prefix=table_prefix).run(target=2)
    first, second, *others = load_migrations()
    edited = Migration(2, second.name, f"{second.text}-- one more line\n")
    migrations = PostgresMigrations(database, table_prefix=table_prefix, migrations=[first, edited, *others])
    with pytest.raises(MigrationError, match="V2 remote_sub_sessions was applied with another text"):
        await migrations.run()
    with pytest.raises(MigrationError, match="another text"):
        await migrations.verify()


async def test_a_version_that_was_left_out_is_refused(database: AsyncpgDatabase, table_prefix: str) -> None:
    """Applied after what was written for it, it may mean something else."""
    migrations = PostgresMigrations(database, table_prefix=table_prefix)
    await migrations.run(target=3)
    await database.execute(f'DELETE FROM "{table_prefix}migrations" WHERE version = 2')
    with pytest.raises(MigrationError, match="version 2 was never applied, yet 3 was"):
        await migrations.run()


async def test_a_target_that_is_not_there_is_refused(migrations: PostgresMigrations) -> None:
    """A typing error migrates nothing."""
    with pytest.raises(MigrationError, match=f"there are versions 1 to {LATEST}"):
        await migrations.run(target=LATEST + 1)


@pytest.mark.parametrize("prefix", ["select", "User_", "_" + "x" * 29])
async def test_prefixes_in_one_database_are_independent(
    database: AsyncpgDatabase, migrations: PostgresMigrations, prefix: str
) -> None:
    """Reserved words, capitals and the longest prefix are names like others; nothing is cut."""
    await migrations.run(target=1)
    other = PostgresMigrations(database, table_prefix=prefix)
    try:
        assert (await other.run()).applied == ALL
        assert await migrations.current_version() == 1
        names = await _tables(database, prefix)
        assert max(map(len, names)) <= 63
        assert f"{prefix}session_rows_operations" in names
    finally:
        await _drop(database, prefix)


@pytest.mark.parametrize(
    "prefix",
    ["", "Üser_", "1a", "a b", 'x"; DROP TABLE s;--', "a" * 31, "a" * 70, "a\n", "a\x00", "a-b", "a.b"],
)
def test_a_hostile_prefix_is_refused(database: AsyncpgDatabase, prefix: str) -> None:
    """It is part of every statement."""
    with pytest.raises(InvalidConfigError, match="table_prefix"):
        PostgresMigrations(database, table_prefix=prefix)


@pytest.mark.parametrize("prefix", [None, 5, b"x", True])
def test_a_prefix_that_is_no_text_is_refused(database: AsyncpgDatabase, prefix: Any) -> None:
    """Python would have printed it into the statement."""
    with pytest.raises(InvalidConfigError, match="text expected"):
        PostgresMigrations(database, table_prefix=prefix)


@pytest.mark.parametrize("found", [0, 1, LATEST - 1])
async def test_older_tables_are_refused(migrations: PostgresMigrations, found: int) -> None:
    """The first turn would fail on a missing column; the message names the command."""
    if found:
        await migrations.run(target=found)
    with pytest.raises(SchemaVersionError, match="run: helix-temporal migrate") as caught:
        await migrations.verify()
    assert caught.value.facts == {"found_version": found, "expected_version": LATEST}


async def test_newer_tables_are_refused_unless_allowed(
    database: AsyncpgDatabase, migrations: PostgresMigrations, table_prefix: str
) -> None:
    """An old worker in a rolling deployment may say that it was made for it."""
    newer = Migration(LATEST + 1, "newer", 'ALTER TABLE "{prefix}states" ADD COLUMN later INT;')
    upgraded = PostgresMigrations(database, table_prefix=table_prefix, migrations=[*load_migrations(), newer])
    await upgraded.run()
    with pytest.raises(SchemaVersionError, match="upgrade it"):
        await migrations.verify()
    assert await migrations.verify(allow_newer=True) == LATEST + 1
    assert await migrations.run() == MigrationResult((), LATEST + 1)


async def test_times_of_expiry_are_compared_as_numbers(
    database: AsyncpgDatabase, migrations: PostgresMigrations, table_prefix: str
) -> None:
    """As text, 999 would come after 1000 and a session would never expire."""
    await migrations.run()
    for number, expires_at in enumerate([1_000, 999, 10**12, 10**13]):
        await _add_session(database, table_prefix, f"s{number}", expires_at=expires_at)
    rows = await database.fetch(
        f'SELECT session_id FROM "{table_prefix}states" WHERE expires_at < $1 ORDER BY expires_at', 10**12 + 1
    )
    assert [row["session_id"] for row in rows] == ["s1", "s0", "s2"]


async def test_the_script_does_what_a_run_does(
    database: AsyncpgDatabase, migrations: PostgresMigrations, table_prefix: str
) -> None:
    """Where only a database administrator may change tables."""
    await database.execute(migrations.script(await migrations.pending()))
    assert await migrations.verify() == LATEST
    assert await migrations.pending() == ()


async def _add_session(database: AsyncpgDatabase, prefix: str, session_id: str = "s", **more: Any) -> None:
    columns = {"session_id": session_id, "body": b"{}", "version": 1, "status": "active", **more}
    columns |= {"created_at": 1, "updated_at": 1}
    places = ", ".join(f"${number}" for number in range(1, len(columns) + 1))
    await database.execute(
        f'INSERT INTO "{prefix}states" ({", ".join(columns)}) VALUES ({places})', *columns.values()
    )


async def _tables(database: AsyncpgDatabase, prefix: str) -> list[str]:
    rows = await database.fetch(
        "SELECT relname FROM pg_class WHERE starts_with(relname::text, $1) AND relkind IN ('r', 'i')", prefix
    )
    return [row["relname"] for row in rows]


async def _drop(database: AsyncpgDatabase, prefix: str) -> None:
    rows = await database.fetch(
        "SELECT quote_ident(tablename) AS name FROM pg_tables WHERE starts_with(tablename::text, $1)", prefix
    )
    await database.execute("; ".join(f"DROP TABLE {row['name']}" for row in rows))


async def test_many_tasks_of_one_process_apply_each_version_once(migrations: PostgresMigrations) -> None:
    """The lock is the transaction's, so one pool may hold many runs."""
    results = await asyncio.gather(*(migrations.run() for _ in range(8)))
    assert sorted(len(result.applied) for result in results) == [0] * 7 + [LATEST]
