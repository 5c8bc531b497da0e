"""The pairing that production uses: messages in Redis, everything else of a session in PostgreSQL."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from helix_temporal.stores.alone import HotThreads
from helix_temporal.stores.sessions import RecordSessions
from helix_temporal.testing.contracts._sessions_checkpoints import CheckpointContract
from helix_temporal.testing.contracts._sessions_fork import ForkContract
from helix_temporal.testing.contracts._sessions_messages import MessagesContract
from helix_temporal.testing.contracts.session_store import OpenSessions, SessionOpener
from tests import _postgres
from tests._sessions import postgres_place, redis_place


@asynccontextmanager
async def _paired(dsn: str, table_prefix: str, url: str, redis_prefix: str) -> AsyncIterator[OpenSessions]:
    async with postgres_place(dsn, table_prefix) as state, redis_place(url, redis_prefix) as messages:
        store = RecordSessions(state.records, HotThreads(messages.threads), together=False)
        yield OpenSessions(store, messages.threads)


class TestRedisBesidePostgres(MessagesContract, CheckpointContract, ForkContract):
    @pytest.fixture
    async def opener(self, postgres_dsn: str, redis_url: str, redis_prefix: str) -> SessionOpener:
        """Empty tables, and an empty prefix."""
        prefix = _postgres.own_prefix("paired")
        async with _postgres.emptied(postgres_dsn, prefix):
            return partial(_paired, postgres_dsn, prefix, redis_url, redis_prefix)
