"""What a pooler says while it takes a connection: a setting to correct, or trouble that passes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from helix_temporal.errors import InvalidConfigError, StoreUnavailableError
from helix_temporal.stores.postgres.database import AsyncpgDatabase

Ask = Callable[[AsyncpgDatabase], Awaitable[object]]


@asynccontextmanager
async def pooler(said: str) -> AsyncIterator[AsyncpgDatabase]:
    """A database whose pooler answers each connection with this error, as PgBouncer does."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        body = b"SFATAL\0C08P01\0M" + said.encode() + b"\0\0"
        writer.write(b"E" + (len(body) + 4).to_bytes(4, "big") + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1")
    port = server.sockets[0].getsockname()[1]
    database = AsyncpgDatabase.from_dsn(f"postgresql://them:secret@127.0.0.1:{port}/d?sslmode=disable")
    async with server:
        yield database
        await database.close()


async def select(database: AsyncpgDatabase) -> object:
    """One statement."""
    return await database.fetchval("SELECT 1")


async def begin(database: AsyncpgDatabase) -> object:
    """A transaction."""
    async with database.transaction() as on:
        return await on.fetchval("SELECT 1")


@pytest.mark.parametrize("ask", [select, begin])
@pytest.mark.parametrize("said", ["bouncer config error", "login rejected", "auth failed"])
async def test_a_refusal_that_does_not_pass_is_told_in_the_poolers_words(said: str, ask: Ask) -> None:
    """Workers retried for ever, and nobody was told what the pooler had said."""
    async with pooler(said) as database:
        with pytest.raises(
            InvalidConfigError, match=f"refused the connection: '{said}'.*auth_type"
        ) as caught:
            await ask(database)
    assert not caught.value.retryable
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("said", ["no such user: them", "No such user: them"])
async def test_an_unknown_user_is_a_matter_of_settings(said: str) -> None:
    """With auth_type=trust as with passwords; older releases write it with a capital."""
    async with pooler(said) as database:
        with pytest.raises(InvalidConfigError, match="refuses the user or the password"):
            await select(database)


@pytest.mark.parametrize(
    "said",
    [
        "no more connections allowed (max_client_conn)",
        "query_wait_timeout",
        "pgbouncer cannot connect to server",
        "server login failed: FATAL the database system is starting up",
        "client_login_timeout",
        "server conn crashed?",
        "no memory for pool",
    ],
)
async def test_a_busy_pooler_is_waited_for(said: str) -> None:
    """A worker that ended by it would be missing when the pooler is there again."""
    async with pooler(said) as database:
        with pytest.raises(StoreUnavailableError):
            await select(database)


async def test_a_pooler_that_let_us_in_before_is_waited_for() -> None:
    """With auth_query, PgBouncer says so to who connects while its server restarts."""
    async with pooler("bouncer config error") as database:
        database._let_in = True
        with pytest.raises(StoreUnavailableError, match="'bouncer config error'"):
            await select(database)
