"""Stores over a pool, or a database object, that an application has already."""

import uuid
from collections.abc import AsyncIterator

import asyncpg
import pytest

from helix_temporal.agents import Agent, ScriptedModel
from helix_temporal.backends import Backends
from helix_temporal.errors import InvalidConfigError
from helix_temporal.facade import create_session, resume_session
from helix_temporal.settings import Settings
from helix_temporal.stores.postgres import (
    AsyncpgDatabase,
    PostgresBackend,
    PostgresLocks,
    PostgresMigrations,
    PostgresSessions,
    PostgresSessionStorage,
    PostgresStreams,
    PostgresThreads,
    PostgresUsage,
)
from helix_temporal.stores.redis import RedisSessionStorage, RedisStreams
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.testing import helix_env

PREFIX = "given_"


@pytest.fixture
async def pool(postgres_dsn: str) -> AsyncIterator["asyncpg.Pool[asyncpg.Record]"]:
    """The application's own pool, with the tables in its database."""
    async with asyncpg.create_pool(postgres_dsn, min_size=0, max_size=4) as pool:
        await PostgresMigrations(pool, table_prefix=PREFIX).run()
        yield pool


async def is_open(pool: "asyncpg.Pool[asyncpg.Record]") -> bool:
    return bool(await pool.fetchval("SELECT true"))


async def test_each_store_takes_a_pool(pool: "asyncpg.Pool[asyncpg.Record]") -> None:
    """An application that has one opens no second one for us."""
    session_id = uuid.uuid4().hex
    sessions = RowSessions(PostgresSessions(pool, table_prefix=PREFIX))
    await sessions.create_session(session_id)
    assert await sessions.load_state(session_id) is not None
    async with PostgresLocks(pool, table_prefix=PREFIX).hold(session_id):
        assert await PostgresThreads(pool, table_prefix=PREFIX).read_header(session_id) is None
    assert await PostgresUsage(pool, table_prefix=PREFIX).get_rollup(session_id) is None
    await PostgresStreams(pool, table_prefix=PREFIX).close()
    assert await is_open(pool)


async def test_a_backend_leaves_a_given_pool_open(pool: "asyncpg.Pool[asyncpg.Record]") -> None:
    """Whoever made it closes it; the same with an `AsyncpgDatabase`."""
    for given in (pool, AsyncpgDatabase(pool)):
        backend = PostgresBackend(given, table_prefix=PREFIX)
        await backend.check()
        await backend.close()
    assert await is_open(pool)


@pytest.mark.parametrize("database", [False, True])
async def test_sessions_are_served_over_a_given_pool(
    pool: "asyncpg.Pool[asyncpg.Record]", database: bool, unique: str
) -> None:
    """`Backends(postgres=…)` stands for ``postgres_dsn``: state, threads and locks are there."""
    agent = Agent(name="support", model=ScriptedModel(["It is on its way."]))
    settings = Settings(task_queue=unique, table_prefix=PREFIX)
    given = AsyncpgDatabase(pool) if database else pool
    plugin = {"backends": Backends(settings, postgres=given)}
    async with helix_env([agent], settings=settings, plugin=plugin) as env:
        answer = await env.sessions.ask(unique, "Where is it?", agent="support")
        assert answer.text == "It is on its way."
        assert isinstance(env.backends.hot, PostgresThreads)
    sessions = RowSessions(PostgresSessions(pool, table_prefix=PREFIX))
    assert await sessions.load_state(unique) is not None
    assert await is_open(pool)


async def test_the_facade_keeps_sessions_in_a_given_pool(pool: "asyncpg.Pool[asyncpg.Record]") -> None:
    agent = Agent(name="support", model=ScriptedModel(["It is on its way."]))
    storage = PostgresSessionStorage(pool, table_prefix=PREFIX)
    session = await create_session(agent, storage=storage)
    await resume_session(session.id, agent, storage=storage)
    await storage.close()
    assert await is_open(pool)


def test_two_databases_are_refused() -> None:
    """Which of them would have the state is nobody's guess."""
    settings = Settings(postgres_dsn="postgresql://localhost/helix")
    with pytest.raises(InvalidConfigError, match="postgres is given, and postgres_dsn is set"):
        Backends(settings, postgres=AsyncpgDatabase.from_dsn("postgresql://localhost/helix"))


def test_what_an_application_needs_of_redis_is_exported() -> None:
    """A private module may move."""
    assert RedisStreams.__module__.startswith("helix_temporal.stores.redis")
    assert RedisSessionStorage.__module__.startswith("helix_temporal.stores.redis")
