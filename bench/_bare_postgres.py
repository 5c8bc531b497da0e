"""asyncpg as a program without this package would use it, on tables like ours."""

from typing import Any, Final

import asyncpg

from helix_temporal.models.states import SessionState
from helix_temporal.models.stored_messages import StoredMessage
from helix_temporal.stores.summaries import encode_summary

_STATE: Final = """
    UPDATE "{prefix}states"
    SET rev = rev + 1, version = version + 1, step_count = step_count + 1,
        updated_at = updated_at + 1, body = $3
    WHERE session_id = $1 AND rev = $2"""
_MESSAGES: Final = """
    INSERT INTO "{prefix}messages" (thread_id, position, kind, id, body)
    VALUES ($1, $2, $3, $4, $5), ($1, $6, $7, $8, $9)"""
_CHECKPOINT: Final = """
    INSERT INTO "{prefix}session_rows" (session_id, kind, grp, key, ord, body)
    VALUES ($1, 'checkpoint_state', '', $2, $3, $4)"""
_RUN: Final = """
    UPDATE "{prefix}session_rows" SET body = $3
    WHERE session_id = $1 AND kind = 'run' AND grp = '' AND key = $2"""

_TOGETHER: Final = """
WITH state AS (
    UPDATE "{prefix}states"
    SET rev = rev + 1, version = version + 1, step_count = step_count + 1,
        updated_at = updated_at + 1, body = $3
    WHERE session_id = $1 AND rev = $2 RETURNING session_id
), messages AS (
    INSERT INTO "{prefix}messages" (thread_id, position, kind, id, body)
    SELECT session_id, $4::bigint, $5::text, $6::text, $7::bytea FROM state
    UNION ALL SELECT session_id, $8::bigint, $9::text, $10::text, $11::bytea FROM state
), checkpoint AS (
    INSERT INTO "{prefix}session_rows" (session_id, kind, grp, key, ord, body)
    SELECT session_id, 'checkpoint_state', '', $12::text, $13::bigint, $3 FROM state
), run AS (
    UPDATE "{prefix}session_rows" AS r SET body = $15 FROM state
    WHERE r.session_id = state.session_id AND r.kind = 'run' AND r.grp = '' AND r.key = $14::text
) SELECT 1 FROM state"""


class BarePostgres:
    """One connection, and a session's rows in tables of ours that nothing of ours looks at.

    State, two messages, a checkpoint and the run, and nothing beside them: neither a fence nor what tells
    a repeat.  Bodies are given as bytes.
    """

    def __init__(self, connection: Any, prefix: str) -> None:
        self._connection, self._prefix = connection, prefix

    @classmethod
    async def connect(cls, dsn: str, prefix: str) -> "BarePostgres":
        """A connection as asyncpg's manual opens it; the tables are there."""
        return cls(await asyncpg.connect(dsn), prefix)

    async def close(self) -> None:
        """End the connection."""
        await self._connection.close()

    async def begin(self, session_id: str) -> None:
        """A session with a run, and no messages."""
        await self._execute(
            'INSERT INTO "{prefix}states" (session_id, body, version, status, created_at, updated_at)'
            " VALUES ($1, '', 1, 'active', 0, 0)",
            session_id,
        )
        await self._execute(
            'INSERT INTO "{prefix}session_rows" (session_id, kind, grp, key, ord, body)'
            " VALUES ($1, 'run', '', 'run', 1, '')",
            session_id,
        )

    async def commit(
        self,
        session_id: str,
        number: int,
        step: tuple[StoredMessage, StoredMessage],
        state: bytes,
        run: bytes,
    ) -> None:
        """One transaction, a statement each for state, messages, checkpoint and run."""
        async with self._connection.transaction():
            done = await self._execute(_STATE, session_id, number, state)
            assert done == "UPDATE 1", done
            await self.append(session_id, 2 * number, step)
            await self._execute(_CHECKPOINT, session_id, f"cp-{number}", number, state)
            await self._execute(_RUN, session_id, "run", run)

    async def commit_at_once(
        self,
        session_id: str,
        number: int,
        step: tuple[StoredMessage, StoredMessage],
        state: bytes,
        run: bytes,
    ) -> None:
        """All of it in one statement."""
        arguments = [
            session_id,
            number,
            state,
            *_values(2 * number, step),
            f"cp-{number}",
            number,
            "run",
            run,
        ]
        done = await self._connection.fetchval(_TOGETHER.replace("{prefix}", self._prefix), *arguments)
        assert done == 1

    async def append(self, thread_id: str, position: int, step: tuple[StoredMessage, StoredMessage]) -> None:
        """Two messages by one statement."""
        await self._execute(_MESSAGES, thread_id, *_values(position, step))

    async def pid(self) -> int:
        """The process of the server that serves this connection."""
        found: int = await self._connection.fetchval("SELECT pg_backend_pid()")
        return found

    async def explain(self, query: str, args: tuple[Any, ...]) -> str:
        """The plan of a statement."""
        rows = await self._connection.fetch(f"EXPLAIN {query}", *args)
        return "\n".join(row[0] for row in rows)

    async def fill(self, count: int) -> None:
        """So many sessions of a hundred users."""
        columns = (
            "session_id",
            "body",
            "version",
            "status",
            "agent_type",
            "user_id",
            "created_at",
            "updated_at",
        )
        await self._connection.copy_records_to_table(
            f"{self._prefix}states",
            records=map(_state_row, range(1, count + 1)),
            columns=(*columns, "summary"),
        )
        await self._execute('VACUUM ANALYZE "{prefix}states"')

    async def _execute(self, query: str, *args: Any) -> str:
        done: str = await self._connection.execute(query.replace("{prefix}", self._prefix), *args)
        return done


def _state_row(number: int) -> tuple[Any, ...]:
    """A session whose list entry is as the store writes it, and whose state is as large as a small one."""
    state = SessionState(
        session_id=f"session-{number}",
        agent_type="agent",
        user_id=f"user-{number % 100}",
        created_at=number,
        updated_at=number,
    )
    shown = (state.agent_type, state.user_id, number, number)
    return state.session_id, bytes(512), 1, "active", *shown, encode_summary(state)


def _values(position: int, step: tuple[StoredMessage, StoredMessage]) -> list[Any]:
    placed = enumerate(step, position)
    return [value for at, message in placed for value in (at, str(message.kind), message.id, message.body)]
