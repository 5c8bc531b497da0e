"""Lists of sessions: the filters that are given become conditions; no text of a caller is ever in SQL."""

import logging
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from helix_temporal.errors import InvalidRequestError, ThreadNotFoundError
from helix_temporal.models.base import dump_json
from helix_temporal.models.records import head_after
from helix_temporal.models.store_calls import (
    DueSession,
    ExpiredSession,
    SessionPage,
    SessionQuery,
    SessionSummary,
    Unset,
)
from helix_temporal.stores.checksums import verify_checksum, with_checksum
from helix_temporal.stores.paging import decode_cursor, encode_cursor
from helix_temporal.stores.postgres.adapter import Database, PostgresExecutor, as_adapter, transact
from helix_temporal.stores.postgres.migrations import check_database
from helix_temporal.stores.postgres.queries import DEFAULT_PREFIX, Queries, header_of, shifted, statement
from helix_temporal.stores.postgres.threads import append_step, append_values
from helix_temporal.stores.protocols.hot import Appended, StepAppend
from helix_temporal.stores.protocols.session_records import (
    RecordKey,
    RecordKind,
    RecordPage,
    RecordsCommitted,
    SessionCommit,
    SessionRecord,
    SessionRow,
    SessionView,
    WantedRecords,
)
from helix_temporal.stores.threads import fences

logger = logging.getLogger(__name__)
M = TypeVar("M", bound=BaseModel)

_COLUMNS: Final = (
    "session_id, agent_type, user_id, status, version, step_count, tags, parent_session_id, expires_at, "
    "created_at, updated_at"
)


async def list_sessions(on: PostgresExecutor, prefix: str, query: SessionQuery) -> SessionPage:
    """See `SessionRecords.list_sessions`; a damaged row is counted and left out."""
    conditions, arguments = _conditions(query)
    where = " AND ".join(conditions)
    total: int = await on.fetchval(f'SELECT count(*) FROM "{prefix}states" WHERE {where}', *arguments)  # noqa: S608
    field, direction = query.order_by.field, query.order_by.direction
    scope = f"sessions.{field}.{direction}"
    if query.cursor is not None:
        order, session_id = decode_cursor(scope, query.cursor)
        beyond = ">" if direction == "asc" else "<"
        arguments += [order, session_id]
        at = len(arguments)
        where += f" AND ({field}, session_id) {beyond} (${at - 1}::bigint, ${at}::text)"
    arguments += [query.limit + 1, 0 if query.cursor else query.offset]
    at = len(arguments)
    rows = await on.fetch(
        f'SELECT {_COLUMNS} FROM "{prefix}states" WHERE {where} '  # noqa: S608 (fixed texts and a checked prefix)
        f"ORDER BY {field} {direction}, session_id {direction} LIMIT ${at - 1} OFFSET ${at}",
        *arguments,
    )
    more = len(rows) > query.limit
    last = rows[query.limit - 1] if more else None
    return SessionPage(
        sessions=tuple(_sound(rows[: query.limit], SessionSummary)),
        total=total,
        offset=query.offset,
        limit=query.limit,
        has_more=more,
        next_cursor=None if last is None else encode_cursor(scope, last[field], last["session_id"]),
    )


def _sound(rows: Sequence[Any], model: type[M]) -> list[M]:
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


def _conditions(query: SessionQuery) -> tuple[list[str], list[Any]]:
    parent = query.parent_session_id
    possible = (
        ("user_id = ?", query.user_id),
        ("agent_type = ?", query.agent_type),
        ("status = ANY (?::text[])", [status.value for status in query.status] or None),
        ("parent_session_id = ?", None if isinstance(parent, Unset) else parent),
        ("tags @> ?::text[]", list(query.tags) or None),
        ("metadata @> ?::jsonb", dump_json(query.metadata).decode() if query.metadata else None),
        (f"{query.date_field} >= ?", query.date_from),
        (f"{query.date_field} < ?", query.date_to),
    )
    given = [(condition, value) for condition, value in possible if value is not None]
    conditions = ["NOT deleted", *(each.replace("?", f"${at}") for at, (each, _) in enumerate(given, 1))]
    if parent is None:
        conditions.append("parent_session_id IS NULL")
    return conditions, [value for _, value in given]


_GROUPED: Final = (RecordKind.STEP, RecordKind.STAGED)
"""Kinds of which a table is read by group, also where a key is wanted."""

_BRANCH: Final = "\nUNION ALL "
_KIND: Final = re.compile(r"SELECT '([a-z_]+)'")
_ASKED: Final = re.compile(r"'[a-z_]+' = ANY \(\$1[12]::text\[\]\) AND ")
_ARGUMENT: Final = re.compile(r"\$\d+::text\[\]")

How = Literal["some", "all", "newest"]


class _Part(NamedTuple):
    how: How
    kind: RecordKind


def view_statement(session_id: str, wanted: WantedRecords, *, prefix: str) -> tuple[str, list[Any]]:
    """The statement that reads a view, and its arguments.

    Raises:
        InvalidRequestError: The newest of a kind is wanted that has no order.
    """
    some = _some(wanted)
    parts = [_Part("all", kind) for kind, _ in wanted.groups if kind not in _GROUPED]
    parts += [_Part("newest", kind) for kind in wanted.newest]
    unknown = [part.kind.value for part in parts if part not in _branches()]
    if unknown:
        raise InvalidRequestError(f"newest of {unknown}: not kept in an order here")
    text = _view_text(tuple(_Part("some", kind) for kind in some), tuple(parts), wanted.thread)
    return text.replace("{prefix}", prefix), [session_id, *some.values()]


def none_of(unless: WantedRecords, used: int) -> tuple[tuple[str, ...], list[Any]]:
    """What holds where nothing of ``unless`` is there: conditions, their arguments from ``$used + 1`` on.

    Raises:
        InvalidRequestError: A key of a kind with groups is among it, or all of a kind without.
    """
    keyed = [name.kind for name in unless.keys if name.kind in _GROUPED]
    whole = [kind for kind, _ in unless.groups if kind not in _GROUPED]
    if keyed or whole:
        raise InvalidRequestError(f"unless: keys of {keyed}, all of {whole}: not looked for in a commit")
    some = _some(unless)
    return _view_conditions(tuple(some), used), list(some.values())


def _some(wanted: WantedRecords) -> dict[RecordKind, list[str]]:
    some: dict[RecordKind, list[str]] = defaultdict(list)
    for name in wanted.keys:
        some[name.kind].append(name.group if name.kind in _GROUPED else name.key)
    for kind, group in wanted.groups:
        if kind in _GROUPED:
            some[kind].append(group)
    return some


@lru_cache(512)
def _view_conditions(kinds: tuple[RecordKind, ...], used: int) -> tuple[str, ...]:
    branches = (_branches()[_Part("some", kind)] for kind in kinds)
    asked = (_ARGUMENT.sub(f"${used + n}::text[]", branch) for n, branch in enumerate(branches, 1))
    return tuple(f"NOT EXISTS ({each})" for each in asked)


@lru_cache(512)
def _view_text(some: tuple[_Part, ...], others: tuple[_Part, ...], thread: bool) -> str:
    branches = _branches()
    texts = [_state()]
    for number, part in enumerate(some, 2):
        texts.append(_ARGUMENT.sub(f"${number}::text[]", branches[part]))
    texts += [branches[part] for part in dict.fromkeys(others)]
    text = _BRANCH.join(texts)
    if not thread:
        return text
    whole = statement("session_view")
    return statement("session_thread_view").replace(whole, text)


@lru_cache(1)
def _branches() -> dict[_Part, str]:
    found: dict[_Part, str] = {}
    for branch in statement("session_view").split(_BRANCH)[1:]:
        named = _KIND.search(branch)
        assert named is not None, branch
        how: How = "all" if "($11::" in branch else "newest" if "($12::" in branch else "some"
        found[_Part(how, RecordKind(named[1]))] = _ASKED.sub("", branch)
    return found


def _state() -> str:
    return statement("session_view").split(_BRANCH)[0]


_GUARD_ARGUMENTS: Final = {"create": 21, "row": 21, "touch": 3, "mark": 3}


def commit_statement(change: SessionCommit, *, prefix: str, append: bool) -> tuple[str, list[Any]]:
    """The statement that makes a commit, and its arguments; no row comes back if it may not happen.

    With ``append`` the step goes into the thread by the same statement, if it stands at its head.
    """
    if change.row is None:
        guard = "touch" if change.revision else "mark"
    else:
        guard = "row" if change.revision else "create"
    arguments: list[Any] = [change.session_id, change.revision, change.max_epoch]
    if change.row is not None:
        arguments += row_values(change.session_id, change.row)
    removed, put = _by_kind(change)
    for kind in removed:
        arguments += removed[kind]
    for kind in put:
        arguments += _put_values(change.session_id, put[kind])
    if append:
        assert change.append is not None
        arguments += append_values(change.append, head_after(change.append.head, change.append.records))
    conditions, values = none_of(change.unless if change.revision else WantedRecords(), len(arguments))
    arguments += values
    parts = (guard, tuple(removed), tuple(put), append, conditions)
    return _text(*parts).replace("{prefix}", prefix), arguments


@lru_cache(512)
def _text(
    guard: str,
    removed: tuple[RecordKind, ...],
    put: tuple[RecordKind, ...],
    append: bool,
    conditions: tuple[str, ...],
) -> str:
    unless = "".join(f"AND {each} " for each in conditions)
    guarding = statement(f"_session_guard_{guard}").replace("RETURNING", f"{unless}RETURNING")
    used, parts = _GUARD_ARGUMENTS[guard], []
    for kind in removed:
        parts.append(f"removed_{kind} AS ({shifted(statement(f'_session_remove_{kind}'), used)})")
        used += 5
    for kind in put:
        parts.append(f"put_{kind} AS ({shifted(statement(f'_session_put_{kind}'), used)})")
        used += 4
    result = "SELECT g.rev FROM guard AS g"
    if append:
        # Both rows are looked at before either is changed: whoever locks the session's row first may.
        moving = shifted(statement("_thread_append"), used)
        moving = moving.replace("RETURNING t.*", "AND EXISTS (SELECT FROM held) RETURNING t.*")
        guarding = guarding.replace("RETURNING", "AND EXISTS (SELECT FROM thread_moved) RETURNING")
        parts = [f"held AS ({_HELD} {unless}FOR UPDATE)", moving, f"guard AS ({guarding})", *parts]
        result = f"SELECT g.rev, {statement('_header')} FROM guard AS g, thread_moved AS t"  # noqa: S608 (ours)
    else:
        parts = [f"guard AS ({guarding})", *parts]
    return f"WITH {', '.join(parts)} {result}"


def place_of(session_id: str, name: RecordKey, order: int) -> tuple[str | int, ...]:
    """What a record's checksum is of, beside its body."""
    return session_id, name.kind.value, name.key, name.group, order


_HELD: Final = 'SELECT 1 FROM "{prefix}states" WHERE session_id = $1 AND rev = $2'


def row_values(session_id: str, row: SessionRow) -> list[Any]:
    """A state's columns, from ``body`` on, in the order of the guards."""
    state = row.state
    searchable = {name: value for name, value in state.metadata.items() if isinstance(value, str)}
    return [
        with_checksum(row.body, session_id, "state"),
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
        row.due_at,
    ]


def _by_kind(
    change: SessionCommit,
) -> tuple[dict[RecordKind, list[Any]], dict[RecordKind, list[SessionRecord]]]:
    put: dict[RecordKind, list[SessionRecord]] = defaultdict(list)
    for record in change.puts:
        put[record.kind].append(record)
    names: dict[RecordKind, list[RecordKey]] = defaultdict(list)
    groups: dict[RecordKind, list[str]] = defaultdict(list)
    for name in change.removes:
        names[name.kind].append(name)
    for kind, group in change.clears:
        groups[kind].append(group)
    removed: dict[RecordKind, list[Any]] = {}
    for kind in sorted({*names, *groups}):
        # One statement sees one state of a table: what is put again must not be removed by it.
        kept = put.get(kind, [])
        removed[kind] = [
            [name.key for name in names[kind]],
            [name.group for name in names[kind]],
            groups[kind],
            [record.key for record in kept],
            [record.group for record in kept],
        ]
    return removed, dict(sorted(put.items()))


def _put_values(session_id: str, records: Sequence[SessionRecord]) -> list[Any]:
    # The last one of a key counts; a statement may touch a row once only.
    last = {record.name: record for record in records}.values()
    return [
        [record.key for record in last],
        [record.group for record in last],
        [record.order for record in last],
        [with_checksum(record.body, *place_of(session_id, record.name, record.order)) for record in last],
    ]


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

    async def view(self, session_id: str, wanted: WantedRecords = WantedRecords()) -> SessionView:  # noqa: B008 (frozen)
        """See `SessionRecords.view`."""
        text, arguments = view_statement(session_id, wanted, prefix=self._queries.prefix)
        rows = await self._adapter.fetch(text, *arguments)
        return _view(session_id, rows, wanted)

    async def commit(self, change: SessionCommit) -> RecordsCommitted | None:
        """See `SessionRecords.commit`."""
        if change.deletes and change.revision:
            revision = await self._adapter.fetchval(
                self._queries["session_delete"], change.session_id, change.revision, change.max_epoch
            )
            return None if revision is None else RecordsCommitted(revision)
        step = change.append
        if step is None:
            return await self._commit(self._adapter, change)
        fences.check_step(step)
        # A session's first commit has no row to look at before the thread's is changed.
        if change.revision:
            text, arguments = commit_statement(change, prefix=self._queries.prefix, append=True)
            row = await self._adapter.fetchrow(text, *arguments)
            if row is not None:
                end = head_after(step.head, step.records)
                appended = Appended(step.records, end, False, header_of(step.thread_id, row))
                return RecordsCommitted(row["rev"], appended)
        return await self._commit_apart(change, step)

    async def _commit(self, on: PostgresExecutor, change: SessionCommit) -> RecordsCommitted | None:
        text, arguments = commit_statement(change, prefix=self._queries.prefix, append=False)
        revision = await on.fetchval(text, *arguments)
        return None if revision is None else RecordsCommitted(revision)

    async def _commit_apart(self, change: SessionCommit, step: StepAppend) -> RecordsCommitted | None:
        """The revision moved, or the thread does not stand at the step's head: find out, one by one."""

        async def work(on: PostgresExecutor) -> RecordsCommitted | None:
            committed = await self._commit(on, change)
            if committed is None:
                return None
            appended = await append_step(on, self._queries, step)
            if appended is None:
                raise ThreadNotFoundError(f"thread {step.thread_id!r} is not in this store")
            return RecordsCommitted(committed.revision, appended)

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
        return tuple(await self._timed(ExpiredSession, "session_expired", "expires_at", before, limit, after))

    async def list_due(
        self, before: int, *, limit: int, after: tuple[int, str] | None = None
    ) -> tuple[tuple[int, str], ...]:
        """See `SessionRecords.list_due`."""
        found = await self._timed(DueSession, "session_due", "due_at", before, limit, after)
        return tuple((each.due_at, each.session_id) for each in found)

    async def _timed(
        self, model: type[M], name: str, column: str, before: int, limit: int, after: tuple[int, str] | None
    ) -> list[M]:
        """The first ``limit`` that are sound: a shorter page would be the last one."""
        found: list[M] = []
        while (wanted := limit - len(found)) > 0:
            at, session_id = after or (None, None)
            rows = await self._adapter.fetch(self._queries[name], before, wanted, at, session_id)
            found += _sound(rows, model)
            if len(rows) < wanted:
                break
            after = rows[-1][column], rows[-1]["session_id"]
        return found

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
    body = verify_checksum(row["body"], where, *place_of(session_id, name, order))
    return SessionRecord(kind, name.key, body, name.group, order)


def _view(session_id: str, rows: list[Any], wanted: WantedRecords) -> SessionView:
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
        state=verify_checksum(state["body"], f"the state of {where}", session_id, "state") if there else None,
        records=tuple(found.values()),
        now=state["now"],
        thread=header_of(session_id, state) if wanted.thread and state["epoch"] is not None else None,
    )
