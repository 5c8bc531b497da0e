"""The façade's sessions in SQLite: a storage of one's own is four methods over one table."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from helix_temporal.errors import StoreCorruptError, StoreUnavailableError
from helix_temporal.facade import StoredSession
from helix_temporal.models.ids import validate_id

T = TypeVar("T")

TABLE = """
CREATE TABLE IF NOT EXISTS sessions (
    id TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    updated_at INTEGER NOT NULL
)
"""


class SqliteSessionStorage:
    """`SessionStorage` in a SQLite database; a session is on the disk when `save` returns.

    Each call has a connection of its own in a thread: SQLite serialises writers, of other processes too.

    Args:
        path: The database's file, made by the first call.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)

    async def save(self, session: StoredSession) -> None:
        """Insert or replace the session's row."""
        row = (session.id, session.model_dump_json(), session.updated_at)
        await self._run(
            lambda db: db.execute(
                "INSERT INTO sessions VALUES (?, ?, ?)"
                " ON CONFLICT (id) DO UPDATE SET state = excluded.state, updated_at = excluded.updated_at",
                row,
            ),
        )

    async def load(self, session_id: str) -> StoredSession | None:
        """The session; None if there is none.

        Raises:
            StoreCorruptError: The row is not a session.
        """
        key = (validate_id(session_id, "session id"),)
        row = await self._run(
            lambda db: db.execute("SELECT state FROM sessions WHERE id = ?", key).fetchone()
        )
        if row is None:
            return None
        try:
            return StoredSession.model_validate_json(row[0])
        except ValidationError:
            raise StoreCorruptError(f"{self._path}: the row of {session_id!r} is not a session") from None

    async def delete(self, session_id: str) -> None:
        """Remove it; nothing if there is none."""
        key = (validate_id(session_id, "session id"),)
        await self._run(lambda db: db.execute("DELETE FROM sessions WHERE id = ?", key))

    async def list(self) -> list[str]:
        """Ids of all sessions, in order."""
        rows = await self._run(lambda db: db.execute("SELECT id FROM sessions ORDER BY id").fetchall())
        return [row[0] for row in rows]

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.to_thread(self._connected, work)

    def _connected(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with closing(sqlite3.connect(self._path, timeout=10)) as db, db:
                db.execute(TABLE)
                return work(db)
        except sqlite3.OperationalError as error:
            raise StoreUnavailableError(f"{self._path}: {error}") from error
