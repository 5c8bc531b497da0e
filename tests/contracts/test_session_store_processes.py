"""What session stores promise to several processes: `make campaign` has the long form."""

from functools import partial
from pathlib import Path

import pytest

from helix_temporal.testing.contracts.session_store import SessionOpener, SharedSessionsContract
from tests import _postgres
from tests._session_stores import sessions_over
from tests._sessions import LONG, postgres_place, redis_place, sqlite_place

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800 if LONG else 120)]


class InProcesses(SharedSessionsContract):
    rounds = 25 if LONG else SharedSessionsContract.rounds


class TestSqliteSessions(InProcesses):
    @pytest.fixture
    def opener(self, data_directory: Path) -> SessionOpener:
        """A file that is not there yet."""
        return sessions_over(partial(sqlite_place, data_directory / "helix.db"))


class TestRedisSessions(InProcesses):
    @pytest.fixture
    def opener(self, redis_url: str, redis_prefix: str) -> SessionOpener:
        """An empty prefix of a real server."""
        return sessions_over(partial(redis_place, redis_url, redis_prefix))


class TestPostgresSessions(InProcesses):
    @pytest.fixture
    async def opener(self, postgres_dsn: str) -> SessionOpener:
        """Empty tables of a real server."""
        prefix = _postgres.own_prefix("sessions")
        async with _postgres.emptied(postgres_dsn, prefix):
            return sessions_over(partial(postgres_place, postgres_dsn, prefix))
