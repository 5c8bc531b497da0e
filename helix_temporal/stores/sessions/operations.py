"""What a view and a commit make of a session: pure.

The memory backend finds the session, asks here, and stores what `apply_commit` returns.  The others decide
the same in scripts and statements, below comments ``rule: stores.sessions.operations.`` and the rule's name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from helix_temporal.models.states import SessionState, SessionStatus
from helix_temporal.models.store_calls import (
    DueSession,
    ExpiredSession,
    SessionPage,
    SessionQuery,
    SessionSummary,
    Unset,
)
from helix_temporal.stores.paging import decode_cursor, encode_cursor
from helix_temporal.stores.protocols.session_rows import (
    RowKey,
    RowKind,
    RowPage,
    SessionCommit,
    SessionRow,
    StoredState,
    WantedRows,
)


@dataclass(frozen=True, slots=True)
class SessionImage:
    """One session as it is held; without a stored state it was deleted."""

    revision: int = 0
    max_epoch: int = 0
    stored: StoredState | None = None
    rows: Mapping[RowKey, SessionRow] = field(default_factory=dict)
    birth: int = 0


_NOWHERE: Final[tuple[int, str, RowKey | None]] = (-(2**63), "", None)

NOTHING: Final = SessionImage()
"""What is held of a session that nobody has ever written."""


# copies: redis, postgres, sqlite
def select_rows(held: SessionImage, wanted: WantedRows) -> tuple[SessionRow, ...]:
    """The rows that a view wants, each once."""
    names = [name for name in wanted.keys if name in held.rows]
    if not wanted.groups and not wanted.newest and not wanted.newest_in:
        return tuple(held.rows[name] for name in dict.fromkeys(names))
    groups = set(wanted.groups)
    newest: dict[RowKind | tuple[RowKind, str], tuple[int, str, RowKey | None]]
    newest = dict.fromkeys((*wanted.newest, *wanted.newest_in), _NOWHERE)
    looked_at = {kind for kind, _ in (*groups, *wanted.newest_in)} | set(wanted.newest)
    for name, row in held.rows.items():
        kind = name.kind
        if kind not in looked_at:
            continue
        if (kind, name.group) in groups:
            names.append(name)
        for place in (kind, (kind, name.group)):
            if place in newest and (row.order, name.key) > newest[place][:2]:
                newest[place] = (row.order, name.key, name)
    names += [name for _, _, name in newest.values() if name is not None]
    return tuple(held.rows[name] for name in dict.fromkeys(names))


# copies: redis, postgres, sqlite
def apply_commit(held: SessionImage, change: SessionCommit, birth: int = 0) -> SessionImage | None:
    """The session after the change, the step in it left out; None if it may not happen.

    ``birth`` is that of a session that begins with it.
    """
    if held.revision != change.revision or change.birth not in {0, held.birth}:
        return None
    if select_rows(held, change.unless):
        return None
    max_epoch = max(held.max_epoch, change.max_epoch)
    after = replace(held, revision=held.revision + 1, birth=held.birth or birth, max_epoch=max_epoch)
    if change.deletes:
        return replace(after, stored=None, rows={})
    cleared = set(change.clears)
    rows = {name: row for name, row in held.rows.items() if (row.kind, row.group) not in cleared}
    for name in change.removes:
        rows.pop(name, None)
    rows.update({row.name: row for row in change.puts})
    return replace(after, stored=change.state or held.stored, rows=rows)


# copies: redis, postgres, sqlite
def page_rows(
    held: SessionImage,
    kind: RowKind,
    *,
    limit: int,
    after: tuple[int, str] | None,
    descending: bool,
    count: bool,
) -> RowPage:
    """See `SessionRows.read_page`."""
    of_kind = sorted(
        (each for each in held.rows.values() if each.kind is kind),
        key=_place_of_row,
        reverse=descending,
    )
    beyond = [each for each in of_kind if after is None or _is_beyond(_place_of_row(each), after, descending)]
    return RowPage(tuple(beyond[:limit]), len(of_kind) if count else None)


def read_group(
    held: SessionImage, kind: RowKind, group: str, *, limit: int, after: str | None, descending: bool
) -> tuple[SessionRow, ...]:
    """See `SessionRows.read_group`."""
    names = sorted(
        (name for name in held.rows if (name.kind, name.group) == (kind, group)),
        key=lambda name: name.key,
        reverse=descending,
    )
    beyond = [
        name for name in names if after is None or (name.key < after if descending else name.key > after)
    ]
    return tuple(held.rows[name] for name in beyond[:limit])


def list_groups(held: SessionImage, kind: RowKind, first: str, stop: str, limit: int) -> tuple[str, ...]:
    """See `SessionRows.list_groups`."""
    found = {name.group for name in held.rows if name.kind is kind and first <= name.group < stop}
    return tuple(sorted(found)[:limit])


# copies: redis, postgres, sqlite
def without_old_operations(held: SessionImage, before: int, limit: int) -> tuple[SessionImage, int]:
    """The session without up to ``limit`` operation rows older than ``before``, and how many went."""
    old = [
        each.name for each in held.rows.values() if each.kind is RowKind.OPERATION and each.order < before
    ][:limit]
    if not old:
        return held, 0
    gone = set(old)
    kept = {name: row for name, row in held.rows.items() if name not in gone}
    return replace(held, rows=kept), len(old)


# ---- lists of sessions ------------------------------------------------------------------------------


class QueriedSession(Protocol):
    """What a query compares of a session: of its state, or of what a list shows of it."""

    @property
    def user_id(self) -> str | None:
        """Whose it is."""
        ...

    @property
    def agent_type(self) -> str:
        """Empty: none."""
        ...

    @property
    def status(self) -> SessionStatus | None:
        """As a whole; None where nobody knows."""
        ...

    @property
    def parent_session_id(self) -> str | None:
        """Of a sub-agent's."""
        ...

    @property
    def tags(self) -> tuple[str, ...]:
        """In any order."""
        ...

    @property
    def metadata(self) -> Mapping[str, object]:
        """As the application set it."""
        ...


# copies: redis, postgres, sqlite
def list_sessions(states: Iterable[SessionState], query: SessionQuery) -> SessionPage:
    """See `SessionRows.list_sessions`; looks at every state that is given."""
    order_field, direction = query.order_by.field, query.order_by.direction
    descending = direction == "desc"
    scope = query.order_by.cursor_scope

    def place(state: SessionState) -> tuple[int, str]:
        return getattr(state, order_field), state.session_id

    matching = sorted((each for each in states if matches_query(each, query)), key=place, reverse=descending)
    rest = matching[query.offset :]
    if query.cursor is not None:
        after = decode_cursor(scope, query.cursor)
        rest = [each for each in matching if _is_beyond(place(each), after, descending)]
    shown = rest[: query.limit]
    more = len(rest) > len(shown)
    return SessionPage(
        sessions=tuple(SessionSummary.of(each, query.include) for each in shown),
        total=len(matching) if query.count else None,
        offset=query.offset,
        limit=query.limit,
        has_more=more,
        next_cursor=encode_cursor(scope, *place(shown[-1])) if more else None,
    )


# copies: redis, postgres, sqlite
def matches_query(state: QueriedSession, query: SessionQuery) -> bool:
    """Whether a session is one of those that a query asks for."""
    parent, at = query.parent_session_id, getattr(state, query.date_field)
    return (
        query.user_id in {None, state.user_id}
        and query.agent_type in {None, state.agent_type}
        and (not query.status or state.status in query.status)
        and (isinstance(parent, Unset) or state.parent_session_id == parent)
        and set(query.tags) <= set(state.tags)
        and all(state.metadata.get(key) == value for key, value in query.metadata.items())
        and (query.date_from is None or at >= query.date_from)
        and (query.date_to is None or at < query.date_to)
    )


# copies: redis, postgres, sqlite
def list_expired(
    states: Iterable[SessionState], before: int, *, limit: int, after: tuple[int, str] | None
) -> tuple[ExpiredSession, ...]:
    """See `SessionRows.list_expired`."""
    places = (
        (state.expires_at, state.session_id, state.cleanup_pending)
        for state in states
        if state.expires_at is not None and state.expires_at < before
    )
    beyond = sorted(each for each in places if after is None or each[:2] > after)
    return tuple(
        ExpiredSession(session_id=name, expires_at=at, cleanup_pending=pending)
        for at, name, pending in beyond[:limit]
    )


# copies: redis, postgres, sqlite
def list_due(
    states: Iterable[StoredState], before: int, *, limit: int, after: tuple[int, str] | None
) -> tuple[DueSession, ...]:
    """See `SessionRows.list_due`."""
    places = ((each.due_at, each.state.session_id) for each in states)
    due = sorted((at, name) for at, name in places if at is not None and at < before)
    beyond = [each for each in due if after is None or each > after]
    return tuple(DueSession(session_id=name, due_at=at) for at, name in beyond[:limit])


def _place_of_row(row: SessionRow) -> tuple[int, str]:
    return row.order, row.key


def _is_beyond(place: tuple[int, str], after: tuple[int, str], descending: bool) -> bool:
    return place < after if descending else place > after
