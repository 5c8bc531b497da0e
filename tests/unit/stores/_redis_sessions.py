"""Commits, and what lists say, for tests of sessions in Redis."""

from typing import Any

from helix_temporal.models.states import SessionState
from helix_temporal.models.store_calls import SessionQuery
from helix_temporal.stores.protocols.session_rows import (
    SessionCommit,
    SessionRow,
    StoredState,
)
from helix_temporal.stores.redis import RedisBackend, RedisSessions
from helix_temporal.stores.redis.session_index import IndexUpdate
from helix_temporal.testing.builders import EPOCH


def change(session_id: str, revision: int = 0, **fields: Any) -> SessionCommit:
    """A commit of a state."""
    state = SessionState(session_id=session_id, version=revision + 1, **fields)
    return SessionCommit(session_id, revision, EPOCH, StoredState(state, state.model_dump_json().encode()))


def only_rows(session_id: str, revision: int, *rows: SessionRow) -> SessionCommit:
    """A commit without a state."""
    return SessionCommit(session_id, revision, EPOCH, puts=rows)


async def listed(sessions: RedisSessions) -> dict[str, int]:
    """What the list says: ids and versions."""
    page = await sessions.list_sessions(SessionQuery(limit=200))
    assert page.total == len(page.sessions)
    return {each.session_id: each.version for each in page.sessions}


async def marks(backend: RedisBackend) -> int:
    """How many commits are on their way to the index."""
    number = await backend.sessions._connection.send_command("ZCARD", backend.sessions._index.marks)
    assert isinstance(number, int)
    return number


async def told(backend: RedisBackend, session_id: str) -> IndexUpdate:
    """What the session itself says."""
    found = await backend.sessions._read_index_update(session_id)
    assert found is not None
    return found


async def gone(backend: RedisBackend, session_id: str) -> None:
    """The session's time to live runs out."""
    key = backend.sessions._connection.key_of(session_id)
    await backend.sessions._connection.send_command("UNLINK", f"{key}:session", f"{key}:session-order")
