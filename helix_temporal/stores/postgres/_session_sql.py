"""Puts the statement of a commit together from its parts: only what the commit changes is in it."""

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from helix_temporal.models._json import dumps
from helix_temporal.models.records import head_after
from helix_temporal.stores._checksums import with_checksum
from helix_temporal.stores.postgres._append import append_values
from helix_temporal.stores.postgres._queries import shifted, statement
from helix_temporal.stores.postgres._session_view import none_of
from helix_temporal.stores.protocols.session_records import (
    RecordKey,
    RecordKind,
    SessionCommit,
    SessionRecord,
    SessionRow,
    Wanted,
)

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
    conditions, values = none_of(change.unless if change.revision else Wanted(), len(arguments))
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
        dumps(searchable).decode(),
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
