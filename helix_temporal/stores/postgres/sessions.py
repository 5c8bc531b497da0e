"""Sessions in PostgreSQL: a row a session, and one for each of its records."""

from collections.abc import AsyncIterator
from typing import Any, Final

from helix_temporal.errors import ThreadNotFoundError
from helix_temporal.models.queries import ExpiredSession, SessionPage, SessionQuery
from helix_temporal.models.records import head_after
from helix_temporal.stores import _decide
from helix_temporal.stores._checksums import checked
from helix_temporal.stores.postgres._adapter import Database, as_adapter
from helix_temporal.stores.postgres._append import append_step
from helix_temporal.stores.postgres._check import check_database
from helix_temporal.stores.postgres._names import DEFAULT_PREFIX
from helix_temporal.stores.postgres._protocol import PostgresExecutor, transact
from helix_temporal.stores.postgres._queries import Queries
from helix_temporal.stores.postgres._rows import header_of
from helix_temporal.stores.postgres._session_list import list_sessions
from helix_temporal.stores.postgres._session_sql import commit_statement, place_of
from helix_temporal.stores.postgres._session_view import view_statement
from helix_temporal.stores.protocols.hot import Appended, StepAppend
from helix_temporal.stores.protocols.session_records import (
    Committed,
    RecordKey,
    RecordKind,
    RecordPage,
    SessionCommit,
    SessionRecord,
    SessionView,
    Wanted,
)

_SCAN: Final = 500


class PostgresSessions:
    """`SessionRecords` on PostgreSQL.  Made by `PostgresBackend`, or over a pool or an adapter of one's own.

    A view is one statement, and so is a commit, with a step of the thread in it or not.

    Args:
        database: An adapter, or an asyncpg pool; whoever made it closes it.
        table_prefix: What the names of all tables begin with; see `PostgresMigrations`.

    Raises:
        InvalidConfigError: The prefix is not acceptable.
    """

    keeps_threads: bool = True
    durable: bool = True

    def __init__(self, database: Database, *, table_prefix: str = DEFAULT_PREFIX) -> None:
        self._adapter, self._queries = as_adapter(database), Queries(table_prefix)

    async def view(self, session_id: str, wanted: Wanted = Wanted()) -> SessionView:  # noqa: B008 (frozen)
        """See `SessionRecords.view`."""
        text, arguments = view_statement(session_id, wanted, prefix=self._queries.prefix)
        rows = await self._adapter.fetch(text, *arguments)
        return _view(session_id, rows, wanted)

    async def commit(self, change: SessionCommit) -> Committed | None:
        """See `SessionRecords.commit`."""
        if change.deletes and change.revision:
            revision = await self._adapter.fetchval(
                self._queries["session_delete"], change.session_id, change.revision, change.max_epoch
            )
            return None if revision is None else Committed(revision)
        step = change.append
        if step is None:
            return await self._commit(self._adapter, change)
        _decide.check_step(step)
        # A session's first commit has no row to look at before the thread's is changed.
        if change.revision:
            text, arguments = commit_statement(change, prefix=self._queries.prefix, append=True)
            row = await self._adapter.fetchrow(text, *arguments)
            if row is not None:
                end = head_after(step.head, step.records)
                appended = Appended(step.records, end, False, header_of(step.thread_id, row))
                return Committed(row["rev"], appended)
        return await self._commit_apart(change, step)

    async def _commit(self, on: PostgresExecutor, change: SessionCommit) -> Committed | None:
        text, arguments = commit_statement(change, prefix=self._queries.prefix, append=False)
        revision = await on.fetchval(text, *arguments)
        return None if revision is None else Committed(revision)

    async def _commit_apart(self, change: SessionCommit, step: StepAppend) -> Committed | None:
        """The revision moved, or the thread does not stand at the step's head: find out, one by one."""

        async def work(on: PostgresExecutor) -> Committed | None:
            committed = await self._commit(on, change)
            if committed is None:
                return None
            appended = await append_step(on, self._queries, step)
            if appended is None:
                raise ThreadNotFoundError(f"thread {step.thread_id!r} is not in this store")
            return Committed(committed.revision, appended)

        return await transact(self._adapter, work)

    async def page(
        self,
        session_id: str,
        kind: RecordKind,
        *,
        limit: int,
        after: tuple[int, str] | None = None,
        descending: bool = False,
    ) -> RecordPage:
        """See `SessionRecords.page`."""
        direction = "desc" if descending else "asc"
        order, key = after or (None, None)
        rows = await self._adapter.fetch(
            self._queries[f"session_page_{kind}_{direction}"], session_id, limit, order, key
        )
        total = await self._adapter.fetchval(self._queries[f"session_count_{kind}"], session_id)
        found = (_record(session_id, kind, row) for row in rows)
        return RecordPage(tuple(found), total)

    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        """See `SessionRecords.list_sessions`."""
        return await list_sessions(self._adapter, self._queries.prefix, query)

    async def scan(self) -> AsyncIterator[str]:
        """See `SessionRecords.scan`."""
        last = ""
        while rows := await self._adapter.fetch(self._queries["session_scan"], last, _SCAN):
            for row in rows:
                yield row["session_id"]
            last = rows[-1]["session_id"]

    async def list_expired(
        self, before: int, *, limit: int, after: tuple[int, str] | None = None
    ) -> tuple[ExpiredSession, ...]:
        """See `SessionRecords.list_expired`."""
        at, session_id = after or (None, None)
        rows = await self._adapter.fetch(self._queries["session_expired"], before, limit, at, session_id)
        return tuple(ExpiredSession.model_validate(dict(row)) for row in rows)

    async def list_due(
        self, before: int, *, limit: int, after: tuple[int, str] | None = None
    ) -> tuple[tuple[int, str], ...]:
        """See `SessionRecords.list_due`."""
        at, session_id = after or (None, None)
        rows = await self._adapter.fetch(self._queries["session_due"], before, limit, at, session_id)
        return tuple((row["due_at"], row["session_id"]) for row in rows)

    async def list_cleanup_pending(self, *, limit: int, after: str | None = None) -> tuple[str, ...]:
        """See `SessionRecords.list_cleanup_pending`."""
        rows = await self._adapter.fetch(self._queries["session_cleanup_pending"], after or "", limit)
        return tuple(row["session_id"] for row in rows)

    async def purge_operations(self, before: int, *, limit: int) -> int:
        """See `SessionRecords.purge_operations`."""
        done = await self._adapter.execute(self._queries["session_purge_operations"], before, limit)
        return int(done.rpartition(" ")[2])

    async def now(self) -> int:
        """See `SessionRecords.now`."""
        now: int = await self._adapter.fetchval(self._queries["session_now"])
        return now

    async def check(self) -> None:
        """See `SessionRecords.check`.

        Raises:
            SchemaVersionError: Migrations are pending, or were made by a newer version.
            UnsupportedServerError: The server is too old, or read-only.
            InvalidConfigError: The user lacks rights on tables.
        """
        await check_database(self._adapter, self._queries.prefix)

    async def close(self) -> None:
        """See `SessionRecords.close`: the backend closes the adapter, which others use as well."""


def _record(session_id: str, kind: RecordKind, row: Any) -> SessionRecord:
    name, order = RecordKey(kind, row["key"], row["grp"]), row["ord"]
    where = f"a record ({kind.value}) of session {session_id!r} in PostgreSQL"
    body = checked(row["body"], where, *place_of(session_id, name, order))
    return SessionRecord(kind, name.key, body, name.group, order)


def _view(session_id: str, rows: list[Any], wanted: Wanted) -> SessionView:
    state = next(row for row in rows if row["kind"] == "state")
    named, groups = set(wanted.keys), set(wanted.groups)
    found: dict[Any, SessionRecord] = {}
    for row in rows:
        if row["kind"] == "state":
            continue
        kind = RecordKind(row["kind"])
        record = _record(session_id, kind, row)
        if record.name in named or (kind, record.group) in groups or kind in wanted.newest:
            found[record.name] = record
    there = state["rev"] is not None and not state["gone"]
    where = f"session {session_id!r} in PostgreSQL"
    return SessionView(
        revision=state["rev"] or 0,
        max_epoch=state["max_epoch"] or 0,
        state=checked(state["body"], f"the state of {where}", session_id, "state") if there else None,
        records=tuple(found.values()),
        now=state["now"],
        thread=header_of(session_id, state) if wanted.thread and state["epoch"] is not None else None,
    )
