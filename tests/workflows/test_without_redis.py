"""The session workflow where PostgreSQL is all there is beside Temporal."""

from datetime import timedelta

import pytest

from helix_temporal.models.sessions import SessionOptions
from helix_temporal.settings import Settings
from helix_temporal.testing.serving import session_worker
from tests import _postgres
from tests.workflows._desk import Desk
from tests.workflows.conftest import TIMEOUTS


@pytest.fixture
def settings(temporal_address: str, postgres_dsn: str, unique: str) -> Settings:
    """No Redis, no S3."""
    return Settings(
        temporal_address=temporal_address,
        postgres_dsn=postgres_dsn,
        table_prefix=_postgres.own_prefix("workflow"),
        task_queue=unique,
        timeouts=TIMEOUTS,
        expire_unarchived_after=timedelta(days=1),
    )


async def test_a_session_talks_ends_and_goes_on(settings: Settings, postgres_dsn: str, unique: str) -> None:
    """One database to run and to back up; the next message finds everything that was said."""
    async with (
        _postgres.emptied(postgres_dsn, settings.table_prefix) as tables,
        session_worker(settings, Desk().agents(), options=SessionOptions(idle_timeout=60)) as served,
    ):
        sessions = served.sessions
        first = await sessions.ask(unique, "one", agent="main")
        await sessions.session(unique).close()
        await sessions.session(unique).result()
        second = await sessions.ask(unique, "two", agent="main")
        told = [message.text for message in await sessions.session(unique).get_messages()]
        await sessions.session(unique).close()
        await sessions.session(unique).result()
        held = await tables.threads.read_header(unique)
    assert (first.text, second.text) == ("1: one", "3: two")
    assert told == ["one", "1: one", "two", "3: two"]
    assert held is not None
    assert held.committed == 4
