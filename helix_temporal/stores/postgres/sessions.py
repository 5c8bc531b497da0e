"""Sessions in PostgreSQL: one in `states` each, and its rows in `session_rows`."""

import logging
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from helix_temporal.models.base import dump_json
from helix_temporal.models.store_calls import (
    DueSession,
    ExpiredSession,
    SessionPage,
    SessionQuery,
    Unset,
)
from helix_temporal.models.stored_messages import head_after
from helix_temporal.stores.checksums import verify_checksum, with_checksum
from helix_temporal.stores.paging import decode_cursor, encode_cursor
from helix_temporal.stores.postgres.database import (
    DatabaseOrPool,
    PostgresExecutor,
    as_database,
    run_in_transaction,
)
from helix_temporal.stores.postgres.migrations import check_database
from helix_temporal.stores.postgres.queries import DEFAULT_PREFIX, Queries, header_of
from helix_temporal.stores.postgres.threads import append_step, append_values
from helix_temporal.stores.protocols.hot import Appended, StepAppend
from helix_temporal.stores.protocols.session_rows import (
    STATE_ALONE,
    RowKey,
    RowKind,
    RowPage,
    RowsCommitted,
    SessionCommit,
    SessionRow,
    SessionView,
    StoredState,
    WantedRows,
    checksum_place,
)
from helix_temporal.stores.summaries import decode_summaries, encode_summary
from helix_temporal.stores.threads.operations import check_step, not_hot_error

logger = logging.getLogger(__name__)
M = TypeVar("M", bound=BaseModel)

_SCAN: Final = 500
_LISTS: Final = {
    ("created_at", "asc"): "session_list_created_at_asc",
    ("created_at", "desc"): "session_list_created_at_desc",
    ("updated_at", "asc"): "session_list_updated_at_asc",
    ("updated_at", "desc"): "session_list_updated_at_desc",
}
"""The statement that lists sessions in an order: the file of that name in ``sql``."""


class PostgresSessions:
    """`SessionRows` on PostgreSQL.  Made by `PostgresBackend`, or over your own `PostgresDatabase` or pool.

    A view is one statement, and so is a commit, with a step of the thread in it or not.

    Args:
        database: A `PostgresDatabase`, or an asyncpg pool; whoever made it closes it.
        table_prefix: What the names of all tables begin with; see `PostgresMigrations`.

    Raises:
        InvalidConfigError: The prefix is not acceptable.
    """

    keeps_threads: bool = True
    durable: bool = True

    def __init__(self, database: DatabaseOrPool, *, table_prefix: str = DEFAULT_PREFIX) -> None:
        self._database, self._queries = as_database(database), Queries(table_prefix)

    async def view(self, session_id: str, wanted: WantedRows = STATE_ALONE) -> SessionView:
        """See `SessionRows.view`."""
        if wanted.groups or wanted.newest or wanted.newest_in or len(wanted.keys) > 1:
            query = self._queries["session_thread_view" if wanted.thread else "session_view"]
            newest = [kind.value for kind in wanted.newest]
            rows = await self._database.fetch(
                query, session_id, *_name_columns(wanted), newest, *_group_columns(wanted.newest_in)
            )
            state = next(row for row in rows if row["kind"] == "state")
            found = [row for row in rows if row is not state]
            return _view_of_rows(session_id, state, state["body"], found, thread=wanted.thread)
        query = self._queries["session_thread_row_view" if wanted.thread else "session_row_view"]
        name = wanted.keys[0] if wanted.keys else None
        key = (None, None, None) if name is None else (name.kind.value, name.group, name.key)
        row = await self._database.fetchrow(query, session_id, *key)
        assert row is not None
        found = [] if row["kind"] is None else [row]
        return _view_of_rows(session_id, row, row["state"], found, thread=wanted.thread)

    async def commit(self, change: SessionCommit) -> RowsCommitted | None:
        """See `SessionRows.commit`."""
        if change.deletes and change.revision:
            revision = await self._database.fetchval(
                self._queries["session_delete"], change.session_id, change.revision, change.max_epoch
            )
            return None if revision is None else RowsCommitted(revision)
        step = change.append
        if step is None:
            return await self._commit_alone(self._database, change)
        check_step(step)
        # A session's first commit has no row to look at before the thread's is changed.
        if change.revision:
            query = self._queries["session_update_append" if change.state else "session_touch_append"]
            end = head_after(step.head, step.messages)
            row = await self._database.fetchrow(query, *_commit_values(change), *append_values(step, end))
            if row is None:
                return None
            if row["rev"] is not None:
                appended = Appended(step.messages, end, False, header_of(step.thread_id, row))
                return RowsCommitted(row["rev"], appended)
        return await self._commit_apart(change, step)

    async def _commit_alone(self, on: PostgresExecutor, change: SessionCommit) -> RowsCommitted | None:
        if change.revision:
            query = self._queries["session_update" if change.state else "session_touch"]
        else:
            query = self._queries["session_create" if change.state else "session_mark"]
        revision = await on.fetchval(query, *_commit_values(change))
        return None if revision is None else RowsCommitted(revision)

    async def _commit_apart(self, change: SessionCommit, step: StepAppend) -> RowsCommitted | None:
        """A first commit, or the thread does not stand at the step's head: one by one."""

        async def work(on: PostgresExecutor) -> RowsCommitted | None:
            committed = await self._commit_alone(on, change)
            if committed is None:
                return None
            appended = await append_step(on, self._queries, step)
            if appended is None:
                raise not_hot_error(step.thread_id)
            return RowsCommitted(committed.revision, appended)

        return await run_in_transaction(self._database, work)

    async def read_page(
        self,
        session_id: str,
        kind: RowKind,
        *,
        limit: int,
        after: tuple[int, str] | None = None,
        descending: bool = False,
        count: bool = True,
    ) -> RowPage:
        """See `SessionRows.read_page`."""
        name = "session_rows_page_desc" if descending else "session_rows_page_asc"
        order, key = after or (None, None)
        rows = await self._database.fetch(self._queries[name], session_id, kind.value, limit, order, key)
        total = None
        if count:
            counted = self._queries["session_rows_page_count"]
            total = await self._database.fetchval(counted, session_id, kind.value)
        found = (_session_row(session_id, kind, row) for row in rows)
        return RowPage(tuple(found), total)

    async def read_group(
        self,
        session_id: str,
        kind: RowKind,
        group: str,
        *,
        limit: int,
        after: str | None = None,
        descending: bool = False,
    ) -> tuple[SessionRow, ...]:
        """See `SessionRows.read_group`."""
        query = self._queries["session_group_page_desc" if descending else "session_group_page_asc"]
        rows = await self._database.fetch(query, session_id, kind.value, group, limit, after)
        return tuple(_session_row(session_id, kind, row) for row in rows)

    async def list_groups(
        self, session_id: str, kind: RowKind, *, first: str, stop: str, limit: int
    ) -> tuple[str, ...]:
        """See `SessionRows.list_groups`."""
        query = self._queries["session_groups"]
        rows = await self._database.fetch(query, session_id, kind.value, first, stop, limit)
        return tuple(row["grp"] for row in rows)

    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        """See `SessionRows.list_sessions`; a damaged row is counted and left out."""
        filters = _filter_values(query)
        total: int | None = None
        if query.count:
            total = await self._database.fetchval(self._queries["session_list_count"], *filters)
        field, direction = query.order_by.field, query.order_by.direction
        scope = query.order_by.cursor_scope
        after = (None, None) if query.cursor is None else decode_cursor(scope, query.cursor)
        skipped = 0 if query.cursor else query.offset
        rows = await self._database.fetch(
            self._queries[_LISTS[field, direction]], *filters, *after, query.limit + 1, skipped, query.whole
        )
        more = len(rows) > query.limit
        last = rows[query.limit - 1] if more else None
        summaries = decode_summaries(rows[: query.limit], query, "PostgreSQL")
        return SessionPage(
            sessions=summaries,
            damaged=len(rows[: query.limit]) - len(summaries),
            total=total,
            offset=query.offset,
            limit=query.limit,
            has_more=more,
            next_cursor=None if last is None else encode_cursor(scope, last[field], last["session_id"]),
        )

    async def scan(self) -> AsyncIterator[str]:
        """See `SessionRows.scan`."""
        last = ""
        while rows := await self._database.fetch(self._queries["session_scan"], last, _SCAN):
            for row in rows:
                yield row["session_id"]
            last = rows[-1]["session_id"]

    async def list_expired(
        self, before: int, *, limit: int, after: tuple[int, str] | None = None
    ) -> tuple[ExpiredSession, ...]:
        """See `SessionRows.list_expired`."""
        return tuple(
            await self._list_by_time(ExpiredSession, "session_expired", "expires_at", before, limit, after)
        )

    async def list_due(
        self, before: int, *, limit: int, after: tuple[int, str] | None = None
    ) -> tuple[DueSession, ...]:
        """See `SessionRows.list_due`."""
        return tuple(await self._list_by_time(DueSession, "session_due", "due_at", before, limit, after))

    async def _list_by_time(
        self, model: type[M], name: str, column: str, before: int, limit: int, after: tuple[int, str] | None
    ) -> list[M]:
        """The first ``limit`` that are sound: a shorter page would be the last one."""
        found: list[M] = []
        while (wanted := limit - len(found)) > 0:
            at, session_id = after or (None, None)
            rows = await self._database.fetch(self._queries[name], before, wanted, at, session_id)
            found += _parse_sound_rows(rows, model)
            if len(rows) < wanted:
                break
            after = rows[-1][column], rows[-1]["session_id"]
        return found

    async def list_cleanup_pending(self, *, limit: int, after: str | None = None) -> tuple[str, ...]:
        """See `SessionRows.list_cleanup_pending`."""
        rows = await self._database.fetch(self._queries["session_cleanup_pending"], after or "", limit)
        return tuple(row["session_id"] for row in rows)

    async def purge_operations(self, before: int, *, limit: int) -> int:
        """See `SessionRows.purge_operations`."""
        done = await self._database.execute(self._queries["session_purge_operations"], before, limit)
        return int(done.rpartition(" ")[2])

    async def now(self) -> int:
        """See `SessionRows.now`."""
        now: int = await self._database.fetchval(self._queries["session_now"])
        return now

    async def check(self) -> None:
        """See `SessionRows.check`.

        Raises:
            SchemaVersionError: Migrations are pending, or were made by a newer version.
            UnsupportedServerError: The server is too old, or read-only.
            InvalidConfigError: The user lacks rights on tables.
        """
        await check_database(self._database, self._queries.prefix)

    async def close(self) -> None:
        """See `SessionRows.close`: the backend closes the database, which others use as well."""


def _name_columns(wanted: WantedRows) -> tuple[list[str], ...]:
    """The rows that are wanted by their keys, and by their groups, as columns."""
    keys = wanted.keys
    return (
        [name.kind.value for name in keys],
        [name.group for name in keys],
        [name.key for name in keys],
        *_group_columns(wanted.groups),
    )


def _group_columns(groups: Sequence[tuple[RowKind, str]]) -> tuple[list[str], ...]:
    return [kind.value for kind, _ in groups], [group for _, group in groups]


def _commit_values(change: SessionCommit) -> list[Any]:
    """The arguments of a commit, without its step: head, rows, state, and what must not be there."""
    # A statement may touch a row only once: the last one of a key counts, and what is put is not removed.
    puts = {row.name: row for row in change.puts}
    removes = tuple(name for name in change.removes if name not in puts)
    values: list[Any] = [change.session_id, change.revision, change.max_epoch]
    values += _name_columns(WantedRows(removes, change.clears))
    values += _put_values(change.session_id, puts.values())
    if change.state is not None:
        values += _state_values(change.session_id, change.state)
    if change.revision:
        values += _name_columns(change.unless)
    return values


def _put_values(session_id: str, rows: Collection[SessionRow]) -> tuple[list[Any], ...]:
    return (
        [row.kind.value for row in rows],
        [row.group for row in rows],
        [row.key for row in rows],
        [row.order for row in rows],
        [with_checksum(row.body, *checksum_place(session_id, row.name, row.order)) for row in rows],
    )


def _state_values(session_id: str, stored: StoredState) -> list[Any]:
    """A state's columns, from ``body`` on, in the order of ``_session_state``."""
    state = stored.state
    searchable = {name: value for name, value in state.metadata.items() if isinstance(value, str)}
    return [
        with_checksum(stored.body, session_id, "state"),
        state.version,
        state.status.value,
        state.agent_type,
        state.user_id,
        state.parent_session_id,
        state.root_session_id,
        list(state.tags),
        dump_json(searchable).decode(),
        state.mode,
        state.failure_reason,
        state.step_count,
        state.resume_count,
        state.expires_at,
        state.cleanup_pending,
        state.created_at,
        state.updated_at,
        stored.due_at,
        encode_summary(state),
    ]


def _session_row(session_id: str, kind: RowKind, row: Any) -> SessionRow:
    name, order = RowKey(kind, row["key"], row["grp"]), row["ord"]
    where = f"a row ({kind.value}) of session {session_id!r} in PostgreSQL"
    body = verify_checksum(row["body"], where, *checksum_place(session_id, name, order))
    return SessionRow(kind, name.key, body, name.group, order)


def _view_of_rows(
    session_id: str, state: Any, body: Any, rows: Sequence[Any], *, thread: bool
) -> SessionView:
    """The view in a session's row (revision, fence, clock, header), its state's body, and other rows."""
    found = (_session_row(session_id, RowKind(row["kind"]), row) for row in rows)
    there = state["rev"] is not None and not state["gone"]
    where = f"session {session_id!r} in PostgreSQL"
    return SessionView(
        revision=state["rev"] or 0,
        max_epoch=state["max_epoch"] or 0,
        state=verify_checksum(body, f"the state of {where}", session_id, "state") if there else None,
        rows=tuple({each.name: each for each in found}.values()),
        now=state["now"],
        thread=header_of(session_id, state) if thread and state["epoch"] is not None else None,
    )


def _filter_values(query: SessionQuery) -> list[Any]:
    """The arguments of ``_session_matches``."""
    parent = query.parent_session_id
    dates = (query.date_from, query.date_to)
    created, updated = (dates, (None, None)) if query.date_field == "created_at" else ((None, None), dates)
    return [
        query.user_id,
        query.agent_type,
        [status.value for status in query.status] or None,
        None if isinstance(parent, Unset) else parent,
        True if parent is None else None,
        list(query.tags) or None,
        dump_json(query.metadata).decode() if query.metadata else None,
        *created,
        *updated,
    ]


def _parse_sound_rows(rows: Sequence[Any], model: type[M]) -> list[M]:
    """What a list shows of rows; a damaged one is named in the log, and keeps no other from the list.

    Its session's next commit writes its columns anew.
    """
    found: list[M] = []
    for row in rows:
        try:
            found.append(model.model_validate(dict(row)))
        except ValidationError as error:
            columns = ", ".join(sorted({str(each["loc"][0]) for each in error.errors() if each["loc"]}))
            logger.warning(
                "session %r is left out of a list: its %s in PostgreSQL is damaged",
                row["session_id"],
                columns,
            )
    return found
