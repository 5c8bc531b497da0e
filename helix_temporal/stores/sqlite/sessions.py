"""Sessions in SQLite: one in `sessions` each, and its rows in `session_rows`."""

import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from helix_temporal.models.base import dump_json
from helix_temporal.models.store_calls import (
    DueSession,
    ExpiredSession,
    SessionPage,
    SessionQuery,
    Unset,
)
from helix_temporal.stores.checksums import verify_checksum, with_checksum
from helix_temporal.stores.paging import decode_cursor, encode_cursor
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
from helix_temporal.stores.sqlite.connection import Database, Statements
from helix_temporal.stores.sqlite.threads import SqliteThreads
from helix_temporal.stores.summaries import decode_summaries, encode_summary
from helix_temporal.stores.threads.operations import not_hot_error

_SCAN: Final = 500
_LISTS: Final = {
    ("created_at", "asc"): "session_list_created_at_asc",
    ("created_at", "desc"): "session_list_created_at_desc",
    ("updated_at", "asc"): "session_list_updated_at_asc",
    ("updated_at", "desc"): "session_list_updated_at_desc",
}
"""The statement that lists sessions in an order; see ``sql/session_lists.sql``."""


class SqliteSessions:
    """`SessionRows` on SQLite.  Made by `SqliteBackend`.

    A commit is one transaction, with a step of the thread in it or not.  A damaged session is left out of
    lists, with a warning; `scan` names it.

    Args:
        database: Of the threads as well.
        threads: The hot threads of the same ids.
        clock: Seconds since 1970.

    Raises (every method): what `Database` raises.
    """

    keeps_threads: bool = True
    durable: bool = True

    def __init__(
        self, database: Database, threads: SqliteThreads, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._database, self._threads, self._clock = database, threads, clock

    async def view(self, session_id: str, wanted: WantedRows = STATE_ALONE) -> SessionView:
        """See `SessionRows.view`."""
        async with self._database.read() as on:
            row = await on.fetch_one("session_state", {"session_id": session_id})
            revision, max_epoch = _read_guard(
                session_id, row, None if row is None else row["state"] is not None
            )
            return SessionView(
                revision=revision,
                max_epoch=max_epoch,
                now=self._now_millis(),
                state=None if row is None else _state_of(session_id, row),
                rows=await _read_wanted(on, session_id, wanted),
                thread=await self._threads.header_on(on, session_id) if wanted.thread else None,
            )

    async def commit(self, change: SessionCommit) -> RowsCommitted | None:
        """See `SessionRows.commit`."""
        session_id, key = change.session_id, {"session_id": change.session_id}
        async with self._database.write(erases=change.deletes) as on:
            row = await on.fetch_one("session_guard", key)
            present = None if row is None else bool(row["present"])
            revision, max_epoch = _read_guard(session_id, row, present)
            # rule: stores.sessions.operations.apply_commit
            if revision != change.revision or await _read_wanted(on, session_id, change.unless):
                return None
            revision, max_epoch = revision + 1, max(max_epoch, change.max_epoch)
            present = not change.deletes and (change.state is not None or bool(present))
            guard = {
                **key,
                "revision": revision,
                "max_epoch": max_epoch,
                "guard": _guard_checksum(session_id, revision, max_epoch, present),
            }
            if change.state is None:
                await on.fetch("session_touch", guard)
            else:
                await on.fetch("session_put", guard | _state_values(change.state))
            if change.deletes:
                await on.fetch("session_delete", key)
                await on.fetch("session_delete_rows", key)
            else:
                await _write_rows(on, change)
            if change.append is None:
                return RowsCommitted(revision)
            appended = await self._threads.append_on(on, change.append)
            if appended is None:
                raise not_hot_error(change.append.thread_id)
            return RowsCommitted(revision, appended)

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
        of_kind = {"session_id": session_id, "kind": kind.value}
        place, key = (None, None) if after is None else after
        async with self._database.read() as on:
            total = (await on.fetch("row_count", of_kind))[0]["total"] if count else None
            name = "row_page_desc" if descending else "row_page_asc"
            rows = await on.fetch(name, of_kind | {"place": place, "key": key, "limit": limit})
        return RowPage(tuple(_session_row(session_id, row) for row in rows), total)

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
        values = _group_values(session_id, kind, group) | {"after": after, "limit": limit}
        name = "row_group_page_desc" if descending else "row_group_page_asc"
        rows = await self._database.fetch(name, values)
        return tuple(_session_row(session_id, row) for row in rows)

    async def list_groups(
        self, session_id: str, kind: RowKind, *, first: str, stop: str, limit: int
    ) -> tuple[str, ...]:
        """See `SessionRows.list_groups`."""
        values = {"session_id": session_id, "kind": kind.value, "first": first, "stop": stop, "limit": limit}
        return tuple(row["group_id"] for row in await self._database.fetch("row_groups", values))

    # -- lists

    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        """See `SessionRows.list_sessions`; a damaged session is counted and left out."""
        order, direction = query.order_by.field, query.order_by.direction
        scope = query.order_by.cursor_scope
        after = (None, None) if query.cursor is None else decode_cursor(scope, query.cursor)
        page = {
            "after_at": after[0],
            "after_id": after[1],
            "limit": query.limit + 1,
            "offset": 0 if query.cursor else query.offset,
            "whole": int(query.whole),
        }
        filters = _filter_values(query)
        async with self._database.read() as on:
            count = await on.fetch("session_list_count", filters) if query.count else None
            rows = await on.fetch(_LISTS[order, direction], filters | page)
        more = len(rows) > query.limit
        last = rows[query.limit - 1] if more else None
        summaries = decode_summaries(rows[: query.limit], query, "SQLite")
        return SessionPage(
            sessions=summaries,
            damaged=len(rows[: query.limit]) - len(summaries),
            total=None if count is None else count[0]["total"],
            offset=query.offset,
            limit=query.limit,
            has_more=more,
            next_cursor=None if last is None else encode_cursor(scope, last["at"], last["session_id"]),
        )

    async def scan(self) -> AsyncIterator[str]:
        """See `SessionRows.scan`."""
        last = ""
        while rows := await self._database.fetch("session_scan", {"after": last, "limit": _SCAN}):
            for row in rows:
                yield row["session_id"]
            last = rows[-1]["session_id"]

    async def list_expired(
        self, before: int, *, limit: int, after: tuple[int, str] | None = None
    ) -> tuple[ExpiredSession, ...]:
        """See `SessionRows.list_expired`."""
        rows = await self._database.fetch("session_expired", _page_values(before, limit, after))
        return tuple(
            ExpiredSession(
                session_id=row["session_id"],
                expires_at=row["expires_at"],
                cleanup_pending=bool(row["cleanup_pending"]),
            )
            for row in rows
        )

    async def list_due(
        self, before: int, *, limit: int, after: tuple[int, str] | None = None
    ) -> tuple[DueSession, ...]:
        """See `SessionRows.list_due`."""
        rows = await self._database.fetch("session_due", _page_values(before, limit, after))
        return tuple(DueSession(session_id=row["session_id"], due_at=row["due_at"]) for row in rows)

    async def list_cleanup_pending(self, *, limit: int, after: str | None = None) -> tuple[str, ...]:
        """See `SessionRows.list_cleanup_pending`."""
        values = {"after": after or "", "limit": limit}
        rows = await self._database.fetch("session_cleanup_pending", values)
        return tuple(row["session_id"] for row in rows)

    # -- upkeep

    async def purge_operations(self, before: int, *, limit: int) -> int:
        """See `SessionRows.purge_operations`."""
        async with self._database.write() as on:
            return len(await on.fetch("session_purge_operations", {"before": before, "limit": limit}))

    async def now(self) -> int:
        """See `SessionRows.now`: the clock of this machine."""
        return self._now_millis()

    async def check(self) -> None:
        """Prove that the file takes writes; see `Database.check`."""
        await self._database.check()

    async def close(self) -> None:
        """See `Database.close`."""
        await self._database.close()

    def _now_millis(self) -> int:
        return int(self._clock() * 1000)


# ---- a session's row --------------------------------------------------------------------------------


def _guard_checksum(session_id: str, revision: int, max_epoch: int, present: bool) -> bytes:
    """The checksum of what no body holds."""
    return with_checksum(b"", session_id, revision, max_epoch, int(present))


def _read_guard(session_id: str, row: sqlite3.Row | None, present: bool | None) -> tuple[int, int]:
    """Revision and fence; zeros if there is no row.

    Raises:
        StoreCorruptError: They are not what was stored.
    """
    if row is None:
        return 0, 0
    revision, max_epoch = row["revision"], row["max_epoch"]
    where = f"the row of session {session_id!r} in SQLite"
    verify_checksum(row["guard"], where, session_id, revision, max_epoch, int(bool(present)))
    return revision, max_epoch


def _state_of(session_id: str, row: sqlite3.Row) -> bytes | None:
    if row["state"] is None:
        return None
    return verify_checksum(
        row["state"], f"the state of session {session_id!r} in SQLite", session_id, "state"
    )


def _state_values(stored: StoredState) -> dict[str, Any]:
    state = stored.state
    return {
        "agent_type": state.agent_type,
        "user_id": state.user_id,
        "status": state.status.value,
        "parent_session_id": state.parent_session_id,
        "labels": _label_texts(state.tags, state.metadata),
        "cleanup_pending": int(state.cleanup_pending),
        "created_at": state.created_at,
        "updated_at": state.updated_at,
        "expires_at": state.expires_at,
        "due_at": stored.due_at,
        "summary": encode_summary(state),
        "state": with_checksum(stored.body, state.session_id, "state"),
    }


def _label_texts(tags: Any, metadata: Any) -> str:
    """Tags and text metadata as one list of texts, so that a query compares sets."""
    pairs = [dump_json([key, value]).decode() for key, value in metadata.items() if isinstance(value, str)]
    return dump_json([*(dump_json([tag]).decode() for tag in tags), *pairs]).decode()


def _filter_values(query: SessionQuery) -> dict[str, Any]:
    parent = query.parent_session_id
    any_parent = isinstance(parent, Unset)
    statuses = [status.value for status in query.status]
    dates, any_time = (query.date_from, query.date_to), (None, None)
    created, updated = (dates, any_time) if query.date_field == "created_at" else (any_time, dates)
    return {
        "user_id": query.user_id,
        "agent_type": query.agent_type,
        "statuses": dump_json(statuses).decode() if statuses else None,
        "any_parent": int(any_parent),
        "parent_session_id": None if any_parent else parent,
        "labels": _label_texts(query.tags, query.metadata) if query.tags or query.metadata else None,
        "created_from": created[0],
        "created_before": created[1],
        "updated_from": updated[0],
        "updated_before": updated[1],
    }


def _page_values(before: int, limit: int, after: tuple[int, str] | None) -> dict[str, Any]:
    at, session_id = (None, None) if after is None else after
    return {"before": before, "limit": limit, "after_at": at, "after_id": session_id}


# ---- rows ----------------------------------------------------------------------------------------


# rule: stores.sessions.operations.select_rows
async def _read_wanted(on: Statements, session_id: str, wanted: WantedRows) -> tuple[SessionRow, ...]:
    """The rows that are wanted and there, each once."""
    rows: list[sqlite3.Row] = []
    for name in wanted.keys:
        rows += await on.fetch("row_one", _key_values(session_id, name))
    for kind, group in wanted.groups:
        rows += await on.fetch("row_group", _group_values(session_id, kind, group))
    for kind in wanted.newest:
        rows += await on.fetch("row_newest", {"session_id": session_id, "kind": kind.value})
    for kind, group in wanted.newest_in:
        last = _group_values(session_id, kind, group) | {"after": None, "limit": 1}
        rows += await on.fetch("row_group_page_desc", last)
    found = {(row["kind"], row["key"], row["group_id"]): row for row in rows}
    return tuple(_session_row(session_id, row) for row in found.values())


# rule: stores.sessions.operations.apply_commit
async def _write_rows(on: Statements, change: SessionCommit) -> None:
    session_id = change.session_id
    for kind, group in change.clears:
        await on.fetch("row_remove_group", _group_values(session_id, kind, group))
    await on.execute_many("row_remove", [_key_values(session_id, name) for name in change.removes])
    puts = [
        _key_values(session_id, row.name)
        | {
            "place": row.order,
            "body": with_checksum(row.body, *checksum_place(session_id, row.name, row.order)),
        }
        for row in change.puts
    ]
    await on.execute_many("row_put", puts)


def _session_row(session_id: str, row: sqlite3.Row) -> SessionRow:
    name = RowKey(RowKind(row["kind"]), row["key"], row["group_id"])
    where = f"{name.kind.value} {name.key!r} of session {session_id!r} in SQLite"
    body = verify_checksum(row["body"], where, *checksum_place(session_id, name, row["place"]))
    return SessionRow(name.kind, name.key, body, name.group, row["place"])


def _key_values(session_id: str, name: RowKey) -> dict[str, Any]:
    return {"session_id": session_id, "kind": name.kind.value, "group_id": name.group, "key": name.key}


def _group_values(session_id: str, kind: RowKind, group: str) -> dict[str, Any]:
    return {"session_id": session_id, "kind": kind.value, "group_id": group}
