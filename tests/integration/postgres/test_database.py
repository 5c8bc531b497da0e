"""What a real PostgreSQL does to its callers, and what they are told."""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from helix_temporal.errors import (
    HelixError,
    InvalidConfigError,
    InvalidMessageError,
    InvalidRequestError,
    SchemaVersionError,
    StoreUnavailableError,
    TooLargeError,
    UnsupportedServerError,
)
from helix_temporal.stores.postgres import (
    AsyncpgDatabase,
    PostgresBackend,
    PostgresExecutor,
    run_in_transaction,
)
from helix_temporal.stores.postgres.database import translate_error
from helix_temporal.stores.postgres.migrations import check_server, refuse_unsupported
from helix_temporal.stores.sessions import RowSessions

SECRET = "hunter2"


@pytest.fixture
async def database(postgres_dsn: str) -> AsyncIterator[AsyncpgDatabase]:
    """A database."""
    database = AsyncpgDatabase.from_dsn(postgres_dsn, timeout=30)
    yield database
    await database.close()


@pytest.fixture
async def table(database: AsyncpgDatabase, unique: str) -> AsyncIterator[str]:
    """A table of numbers, two rows in it."""
    await database.execute(f"CREATE TABLE {unique} (id INT PRIMARY KEY, n BIGINT, t TEXT)")
    await database.execute(f"INSERT INTO {unique} VALUES (1, 0), (2, 0)")
    yield unique
    await database.execute(f"DROP TABLE {unique}")


def replaced(dsn: str, *, user: str = "", netloc: str = "", query: str = "", path: str = "") -> str:
    parts = urlsplit(dsn)
    place = netloc or f"{user or parts.username}@{parts.hostname}:{parts.port}"
    return parts._replace(netloc=place, query=query, path=path or parts.path).geturl()


async def refusal(dsn: str, statement: str = "SELECT 1") -> HelixError:
    database = AsyncpgDatabase.from_dsn(dsn, timeout=5)
    try:
        with pytest.raises(HelixError) as caught:
            await database.fetchval(statement)
    finally:
        await database.close()
    return caught.value


async def test_transactions_that_deadlock_are_both_done(database: AsyncpgDatabase, table: str) -> None:
    """The server ends one of them; its caller never hears of it."""
    meeting, met = asyncio.Barrier(2), False

    async def work(on: PostgresExecutor, first: int, second: int) -> None:
        nonlocal met
        await on.execute(f"UPDATE {table} SET n = n + 1 WHERE id = $1", first)
        if not met:
            await meeting.wait()
            met = True
        await on.execute(f"UPDATE {table} SET n = n + 1 WHERE id = $1", second)

    await asyncio.gather(
        run_in_transaction(database, lambda on: work(on, 1, 2)),
        run_in_transaction(database, lambda on: work(on, 2, 1)),
    )
    rows = await database.fetch(f"SELECT n FROM {table} ORDER BY id")
    assert [row["n"] for row in rows] == [2, 2]


async def test_statements_that_collide_are_run_again(database: AsyncpgDatabase, table: str) -> None:
    """Where somebody inserted between a statement's look and its write, the second look sees it."""
    statement = f"""INSERT INTO {table} SELECT 3, 1 FROM (SELECT pg_sleep(0.05)) AS s
        WHERE NOT EXISTS (SELECT FROM {table} WHERE id = 3)"""
    done = await asyncio.gather(*(database.execute(statement) for _ in range(8)))
    assert sorted(done) == ["INSERT 0 0"] * 7 + ["INSERT 0 1"]


async def test_a_transaction_is_rolled_back_by_any_exception(database: AsyncpgDatabase, table: str) -> None:
    """Also by one of ours: a check that fails after a write takes the write back."""

    async def work(on: PostgresExecutor) -> None:
        await on.execute(f"UPDATE {table} SET n = 9")
        raise InvalidRequestError("no")

    with pytest.raises(InvalidRequestError, match="no"):
        await run_in_transaction(database, work)
    assert await database.fetchval(f"SELECT sum(n)::int FROM {table}") == 0


async def test_a_terminated_connection_is_a_passing_error(database: AsyncpgDatabase) -> None:
    """An administrator, a failover or a pooler did it; the next call gets another connection."""

    async def cut() -> None:
        async with database.transaction() as on:
            await on.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    with pytest.raises(StoreUnavailableError) as caught:
        await cut()
    assert caught.value.retryable
    assert await database.fetchval("SELECT 1") == 1


async def test_a_connection_cut_while_idle_costs_at_most_one_call(
    database: AsyncpgDatabase, postgres_dsn: str
) -> None:
    """A server restarted in the night; in the morning calls work again."""
    pid = await database.fetchval("SELECT pg_backend_pid()")
    other = AsyncpgDatabase.from_dsn(postgres_dsn)
    await other.fetchval("SELECT pg_terminate_backend($1)", pid)
    await other.close()
    answers = await asyncio.gather(*(database.fetchval("SELECT 1") for _ in range(2)), return_exceptions=True)
    assert [each for each in answers if not isinstance(each, StoreUnavailableError | int)] == []
    assert await database.fetchval("SELECT 1") == 1


@pytest.mark.parametrize("port", [1, 9])
async def test_a_server_that_is_not_there_is_a_passing_error(port: int) -> None:
    """It may be starting; the message names the place and not the password."""
    error = await refusal(f"postgresql://u:{SECRET}@127.0.0.1:{port}/db")
    assert isinstance(error, StoreUnavailableError)
    assert f"127.0.0.1:{port}/db" in str(error)
    assert SECRET not in str(error)


async def test_too_many_connections_are_a_passing_error(
    postgres_dsn: str, database: AsyncpgDatabase, unique: str
) -> None:
    """Workers of an old deployment are about to end."""
    await database.execute(f"CREATE ROLE {unique} LOGIN CONNECTION LIMIT 0")
    error = await refusal(replaced(postgres_dsn, user=unique))
    await database.execute(f"DROP ROLE {unique}")
    assert isinstance(error, StoreUnavailableError)
    assert error.facts["sqlstate"] == "53300"


async def test_a_statement_that_takes_too_long_is_a_passing_error(postgres_dsn: str) -> None:
    """A lock that somebody holds, a disk that hangs: nobody waits for ever."""
    database = AsyncpgDatabase.from_dsn(postgres_dsn, timeout=0.2)
    with pytest.raises(StoreUnavailableError, match="TimeoutError"):
        await database.execute("SELECT pg_sleep(20)")
    await database.close()


async def test_a_cancelled_statement_gives_its_connection_back(postgres_dsn: str) -> None:
    """An activity that is cancelled must not leave its worker with one connection less, or its lock held."""
    database = AsyncpgDatabase.from_dsn(postgres_dsn, max_connections=1, timeout=30)
    for _ in range(3):
        sleeping = asyncio.create_task(database.execute("SELECT pg_sleep(20)"))
        await asyncio.sleep(0.05)
        sleeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sleeping
        assert await database.fetchval("SELECT 1") == 1
    await database.close()


async def test_a_cancelled_transaction_is_rolled_back(database: AsyncpgDatabase, table: str) -> None:
    """Half a change would be found by nobody."""

    async def work(on: PostgresExecutor) -> None:
        await on.execute(f"UPDATE {table} SET n = 9")
        await on.execute("SELECT pg_sleep(20)")

    working = asyncio.create_task(run_in_transaction(database, work))
    await asyncio.sleep(0.1)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    await database.execute(f"UPDATE {table} SET n = n + 1")
    assert await database.fetchval(f"SELECT sum(n)::int FROM {table}") == 2


async def test_more_callers_than_connections_wait_their_turn(postgres_dsn: str) -> None:
    """A worker's hundred activities share a few connections."""
    database = AsyncpgDatabase.from_dsn(postgres_dsn, max_connections=2, timeout=30)
    pids = await asyncio.gather(*(database.fetchval("SELECT pg_backend_pid()") for _ in range(40)))
    await database.close()
    assert len(set(pids)) <= 2


async def test_an_unknown_database_is_a_matter_of_settings(postgres_dsn: str) -> None:
    """Repeating would not help."""
    error = await refusal(replaced(postgres_dsn, path="/no_such_database"))
    assert isinstance(error, InvalidConfigError)
    assert not error.retryable


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("unsupported startup parameter: search_path", "search_path; .*ignore_startup_parameters"),
        ("unsupported startup parameter in options: jit", "parameter jit; "),
        ("no such database: theirs", "no such database"),
        ("no such user: them", "the user or the password"),
        ("SASL authentication failed", "the user or the password"),
        ("password authentication failed", "the user or the password"),
        ("SSL required", "sslmode=require"),
    ],
)
def test_what_pgbouncer_refuses_for_good_is_a_matter_of_settings(said: str, told: str) -> None:
    """It has one code for that and for what passes."""
    error = translate_error(asyncpg.ProtocolViolationError(said), "here")
    assert isinstance(error, InvalidConfigError)
    assert re.search(told, str(error))
    assert "them" not in str(error)


@pytest.mark.parametrize("said", ["query_wait_timeout", "no more connections allowed (max_client_conn)"])
def test_what_pgbouncer_refuses_for_the_moment_is_a_passing_error(said: str) -> None:
    """Workers wait for it."""
    assert isinstance(translate_error(asyncpg.ProtocolViolationError(said), "here"), StoreUnavailableError)


@pytest.mark.parametrize("option", ["sslrootcert", "sslcert"])
@pytest.mark.parametrize("text", [None, "no certificate"])
async def test_a_file_of_certificates_that_is_none_is_a_matter_of_settings(
    postgres_dsn: str, tmp_path: Path, option: str, text: str | None
) -> None:
    """No file comes by waiting."""
    file = tmp_path / "file.pem"
    if text is not None:
        file.write_text(text)
    error = await refusal(replaced(postgres_dsn, query=f"sslmode=require&{option}={file}"))
    assert isinstance(error, InvalidConfigError)
    assert "postgres_dsn" in str(error)


@pytest.fixture
async def granted(
    postgres_dsn: str, database: AsyncpgDatabase, unique: str
) -> AsyncIterator[Callable[[str], Awaitable[PostgresBackend]]]:
    """A backend over migrated tables, whose user is given rights on all of them."""
    own = PostgresBackend(postgres_dsn, table_prefix=f"{unique}_")
    await own.migrations.run()
    names = [*own.migrations.tables, f"{unique}_migrations"]
    await database.execute(f"CREATE ROLE {unique} LOGIN")
    backend = PostgresBackend(replaced(postgres_dsn, user=unique), table_prefix=f"{unique}_")

    async def grant(rights: str) -> PostgresBackend:
        await database.execute(f"GRANT {rights} ON {', '.join(names)} TO {unique}")
        return backend

    yield grant
    await backend.close()
    await own.close()
    await database.execute(f"DROP OWNED BY {unique}; DROP ROLE {unique}; DROP TABLE {', '.join(names)}")


async def test_rights_that_are_missing_are_named_at_the_start(
    granted: Callable[[str], Awaitable[PostgresBackend]], database: AsyncpgDatabase, unique: str
) -> None:
    """The table and the right, before a session fails when something is deleted for the first time."""
    backend = await granted("SELECT, INSERT, UPDATE, DELETE")
    await backend.check()
    await database.execute(f"REVOKE UPDATE, DELETE ON {unique}_locks FROM {unique}")
    with pytest.raises(InvalidConfigError, match=f'grant DELETE, UPDATE on "{unique}_locks"$'):
        await backend.check()


async def test_a_right_that_is_missed_later_names_its_table(
    granted: Callable[[str], Awaitable[PostgresBackend]], unique: str
) -> None:
    """Taken away while workers ran, or under a program that checks nothing."""
    backend = await granted("SELECT")
    with pytest.raises(InvalidConfigError, match=f"a right on {unique}_states;.*grant"):
        await RowSessions(backend.sessions).create_session("s")


async def test_a_missing_right_is_a_matter_of_settings(
    postgres_dsn: str, database: AsyncpgDatabase, table: str
) -> None:
    """The user exists, and may not read the table."""
    await database.execute(f"CREATE ROLE {table}_reader LOGIN")
    error = await refusal(replaced(postgres_dsn, user=f"{table}_reader"), f"SELECT * FROM {table}")
    await database.execute(f"DROP ROLE {table}_reader")
    assert isinstance(error, InvalidConfigError)


@pytest.mark.parametrize("statement", ["CREATE TABLE never (a INT)", "CREATE SCHEMA never"])
async def test_a_server_that_takes_no_writes_is_a_passing_error(postgres_dsn: str, statement: str) -> None:
    """A failover, or a guard against a full disk: somebody is about to mend it."""
    error = await refusal(replaced(postgres_dsn, query="default_transaction_read_only=on"), statement)
    assert isinstance(error, StoreUnavailableError)
    assert "read-only" in str(error)


@pytest.fixture
async def turning(
    postgres_dsn: str, database: AsyncpgDatabase, unique: str
) -> AsyncIterator[Callable[[bool], Awaitable[str]]]:
    """A user whose new connections can be read-only, as those to a primary that was demoted; its DSN."""
    await database.execute(f"CREATE ROLE {unique} LOGIN SUPERUSER")

    async def turn(read_only: bool) -> str:
        await database.execute(f"ALTER ROLE {unique} SET default_transaction_read_only = {read_only}")
        return replaced(postgres_dsn, user=unique)

    yield turn
    await database.execute(f"DROP ROLE {unique}")


async def in_one_statement(database: AsyncpgDatabase, table: str) -> None:
    await database.execute(f"UPDATE {table} SET n = n + 1")


async def in_a_transaction(database: AsyncpgDatabase, table: str) -> None:
    await run_in_transaction(database, lambda on: on.execute(f"UPDATE {table} SET n = n + 1"))


@pytest.mark.parametrize("write", [in_one_statement, in_a_transaction])
@pytest.mark.parametrize("given", [False, True])
async def test_no_connection_stays_with_a_server_that_became_read_only(
    turning: Callable[[bool], Awaitable[str]],
    table: str,
    write: Callable[[AsyncpgDatabase, str], Awaitable[None]],
    *,
    given: bool,
) -> None:
    """After a failover the address leads to the new primary: one call learns of it, none after it fails."""
    dsn = await turning(True)
    pool = await asyncpg.create_pool(dsn, min_size=0)
    database = AsyncpgDatabase(pool) if given else AsyncpgDatabase.from_dsn(dsn)
    await asyncio.gather(*(database.fetchval("SELECT pg_sleep(0.1)") for _ in range(5)))
    await turning(False)
    with pytest.raises(StoreUnavailableError, match="read-only") as caught:
        await write(database, table)
    assert caught.value.retryable
    await asyncio.gather(*(write(database, table) for _ in range(5)))
    await database.close()
    await pool.close()


async def test_a_session_goes_on_when_its_database_takes_writes_again(
    postgres_dsn: str, database: AsyncpgDatabase, unique: str
) -> None:
    """Turned read-only under running stores: commits are told to be repeated, and then succeed."""
    await database.execute(f"CREATE DATABASE {unique}")
    backend = PostgresBackend(replaced(postgres_dsn, path=f"/{unique}"))
    await backend.migrations.run()
    await backend.check()
    sessions = RowSessions(backend.sessions)
    await sessions.create_session("s")
    await database.execute(f"ALTER DATABASE {unique} SET default_transaction_read_only = on")
    await backend.database.close()
    with pytest.raises(UnsupportedServerError, match="read-only"):
        await backend.check()
    with pytest.raises(StoreUnavailableError, match="read-only"):
        await sessions.increment_step_count("s")
    await database.execute(f"ALTER DATABASE {unique} RESET default_transaction_read_only")
    await sessions.increment_step_count("s")
    await backend.close()
    await database.execute(f"DROP DATABASE {unique}")


async def test_a_read_only_server_is_refused_at_start(postgres_dsn: str) -> None:
    """Before a worker takes any work."""
    backend = PostgresBackend(replaced(postgres_dsn, query="default_transaction_read_only=on"))
    with pytest.raises(UnsupportedServerError, match="read-only"):
        await backend.check()
    await backend.close()


async def test_this_server_is_supported(database: AsyncpgDatabase) -> None:
    """What the tests run on."""
    await check_server(database)


@pytest.mark.parametrize(
    ("version", "encoding", "read_only", "found"),
    [
        (12, "UTF8", False, "version 12, at least 13 needed"),
        (16, "SQL_ASCII", False, "encoding is SQL_ASCII, UTF8 needed"),
        (16, "UTF8", True, "read-only"),
    ],
)
def test_what_would_not_do_is_named(version: int, encoding: str, read_only: bool, found: str) -> None:
    """What was found and what is needed."""
    with pytest.raises(UnsupportedServerError, match=found):
        refuse_unsupported("db:5432/app", version, encoding, read_only=read_only)


@pytest.mark.parametrize("text", ["a\x00b", "\ud800", "ok \udfff"])
async def test_text_that_the_server_cannot_hold_is_not_sent(
    database: AsyncpgDatabase, table: str, text: str
) -> None:
    """Its own refusal would come in the middle of a transaction, and quote the text."""
    with pytest.raises(InvalidMessageError, match=r"\$1"):
        await database.execute(f"UPDATE {table} SET t = $1", text)
    with pytest.raises(InvalidMessageError, match=r"\$2"):
        await database.execute(f"UPDATE {table} SET n = $1 WHERE t = ANY($2::text[])", 1, ["ok", text])


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**70])
async def test_a_number_out_of_range_is_refused_without_being_quoted(
    database: AsyncpgDatabase, table: str, number: int
) -> None:
    """Values stay out of messages."""
    with pytest.raises(InvalidRequestError) as caught:
        await database.execute(f"UPDATE {table} SET n = $1", number)
    assert str(number) not in str(caught.value)


async def test_a_key_that_no_index_can_hold_is_too_large(database: AsyncpgDatabase, table: str) -> None:
    """Instead of an error about pages."""
    await database.execute(f"CREATE INDEX ON {table} (t)")
    with pytest.raises(TooLargeError):
        await database.execute(f"UPDATE {table} SET t = $1", secrets.token_hex(20_000))


async def test_a_missing_table_names_the_command_that_makes_it(postgres_dsn: str, table_prefix: str) -> None:
    """The most likely mistake of a first deployment."""
    backend = PostgresBackend(postgres_dsn, table_prefix=table_prefix)
    with pytest.raises(SchemaVersionError, match="helix-temporal migrate"):
        await backend.threads.read_header("t")
    await backend.close()


@pytest.mark.parametrize(
    "dsn", ["", "db", "mysql://db/x", f"postgresql://u:{SECRET}@[::1/db", "postgresql://db:port"]
)
def test_a_dsn_that_is_none_is_refused_at_once(dsn: str) -> None:
    """And not shown: it may hold a password."""
    with pytest.raises(InvalidConfigError, match="postgres_dsn") as caught:
        AsyncpgDatabase.from_dsn(dsn)
    assert SECRET not in str(caught.value)


async def test_a_pool_of_ones_own_is_used(postgres_dsn: str) -> None:
    """An application has one already, with its own ways to connect."""
    pool = await asyncpg.create_pool(postgres_dsn, min_size=0)
    database = AsyncpgDatabase(pool)
    assert await database.fetchval("SELECT 1") == 1
    await database.close()
    with pytest.raises(StoreUnavailableError, match="closed"):
        await database.fetchval("SELECT 1")


async def test_a_closed_database_opens_again(database: AsyncpgDatabase) -> None:
    """A worker that drains closes before its last activity has ended."""
    assert await database.fetchval("SELECT 1") == 1
    await database.close()
    assert await database.fetchval("SELECT 1") == 1
