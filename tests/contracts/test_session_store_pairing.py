"""The pairing that production uses: messages in Redis, everything else of a session in PostgreSQL."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import cycle

import pytest

from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.protocols.session_rows import SessionRows
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.testing.contracts._sessions_base import Crowd
from helix_temporal.testing.contracts._sessions_checkpoints import CheckpointContract
from helix_temporal.testing.contracts._sessions_cuts import CutsContract
from helix_temporal.testing.contracts._sessions_fork import ForkContract
from helix_temporal.testing.contracts._sessions_messages import MessagesContract
from helix_temporal.testing.contracts.session_store import OpenSessions, SessionOpener
from tests._sessions import Place, postgres_place, redis_place


@asynccontextmanager
async def _paired(dsn: str, table_prefix: str, url: str, redis_prefix: str) -> AsyncIterator[OpenSessions]:
    async with postgres_place(dsn, table_prefix) as state, redis_place(url, redis_prefix) as messages:
        yield _pair(state.rows, messages)


def _pair(rows: SessionRows, messages: Place) -> OpenSessions:
    store = RowSessions(rows, HotThreads(messages.threads), together=False)
    return OpenSessions(store, messages.threads)


class TestRedisBesidePostgres(MessagesContract, CutsContract, CheckpointContract, ForkContract):
    @pytest.fixture
    def opener(
        self, postgres_dsn: str, postgres: PostgresBackend, redis_url: str, redis_prefix: str
    ) -> SessionOpener:
        """Empty tables, and an empty prefix."""
        return partial(_paired, postgres_dsn, postgres.table_prefix, redis_url, redis_prefix)

    @pytest.fixture
    async def opened(
        self, postgres: PostgresBackend, redis_url: str, redis_prefix: str
    ) -> AsyncIterator[OpenSessions]:
        """Over connections to PostgreSQL that are open already."""
        async with redis_place(redis_url, redis_prefix) as messages:
            yield _pair(postgres.sessions, messages)

    @pytest.fixture
    async def crowd(
        self, postgres: PostgresBackend, connected_crowd: list[Place], redis_url: str, redis_prefix: str
    ) -> AsyncIterator[Crowd]:
        """As for ``opened``."""
        async with AsyncExitStack() as stack:
            opened = [redis_place(redis_url, redis_prefix) for _ in connected_crowd]
            messages = [await stack.enter_async_context(each) for each in opened]
            pairs = zip(connected_crowd, messages, strict=True)
            yield cycle([_pair(state.rows, each).sessions for state, each in pairs])
