"""Every session store keeps the same promises."""

import os
from functools import partial
from itertools import cycle
from pathlib import Path

import pytest

from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.testing.contracts._sessions_base import Crowd
from helix_temporal.testing.contracts.session_store import OpenSessions, SessionOpener, SessionStoreContract
from tests._session_stores import sessions_over, store_over
from tests._sessions import LONG, Place, memory_place, postgres_place, redis_place, sqlite_place


class Contract(SessionStoreContract):
    rounds = 20 if LONG else SessionStoreContract.rounds


class TestMemorySessions(Contract):
    @pytest.fixture
    def opener(self) -> SessionOpener:
        """Empty dicts."""
        return sessions_over(memory_place())


class TestMemorySessionsApartFromTheirThreads(Contract):
    @pytest.fixture
    def opener(self) -> SessionOpener:
        """As with threads in Redis and sessions in PostgreSQL: no unit holds both."""
        return sessions_over(memory_place(together=False))


class TestSqliteSessions(Contract):
    @pytest.fixture
    def opener(self, data_directory: Path) -> SessionOpener:
        """A file that is not there yet."""
        return sessions_over(partial(sqlite_place, data_directory / "helix.db"))

    async def test_no_file_is_outside_the_directory(
        self, opener: SessionOpener, data_directory: Path
    ) -> None:
        """However an id looks like a path (case 11)."""
        async with opener() as opened:
            for session_id in ("../x", "/tmp/x", "a/b", "..", "%2e%2e", "~"):
                await opened.sessions.create_session(session_id)
        places = {place for place, _, files in os.walk(data_directory.parent) if files}
        assert places == {str(data_directory)}


class TestRedisSessions(Contract):
    @pytest.fixture
    def opener(self, redis_url: str, redis_prefix: str) -> SessionOpener:
        """An empty prefix of a real server."""
        return sessions_over(partial(redis_place, redis_url, redis_prefix))


class TestPostgresSessions(Contract):
    @pytest.fixture
    def opener(self, postgres_dsn: str, postgres: PostgresBackend) -> SessionOpener:
        """Over connections of its own."""
        return sessions_over(partial(postgres_place, postgres_dsn, postgres.table_prefix))

    @pytest.fixture
    async def opened(self, postgres: PostgresBackend) -> OpenSessions:
        """Over connections that are open already: another one for each test would take longer."""
        return store_over(Place(postgres.sessions, postgres.threads))

    @pytest.fixture
    async def crowd(self, postgres: PostgresBackend, connected_crowd: list[Place]) -> Crowd:
        """As for ``opened``: sixteen connections."""
        return cycle([store_over(place).sessions for place in connected_crowd])
