"""Lists of sessions: the filters that are given become conditions; no text of a caller is ever in SQL."""

from typing import Any, Final

from helix_temporal.models._json import dumps
from helix_temporal.models.queries import SessionPage, SessionQuery, SessionSummary, Unset
from helix_temporal.stores._cursors import decode_cursor, encode_cursor
from helix_temporal.stores.postgres._protocol import PostgresExecutor

_COLUMNS: Final = (
    "session_id, agent_type, user_id, status, version, step_count, tags, parent_session_id, expires_at, "
    "created_at, updated_at"
)


async def list_sessions(on: PostgresExecutor, prefix: str, query: SessionQuery) -> SessionPage:
    """See `SessionRecords.list_sessions`."""
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
    found = tuple(SessionSummary.model_validate(dict(row)) for row in rows[: query.limit])
    more = len(rows) > query.limit
    return SessionPage(
        sessions=found,
        total=total,
        offset=query.offset,
        limit=query.limit,
        has_more=more,
        next_cursor=encode_cursor(scope, getattr(found[-1], field), found[-1].session_id) if more else None,
    )


def _conditions(query: SessionQuery) -> tuple[list[str], list[Any]]:
    parent = query.parent_session_id
    possible = (
        ("user_id = ?", query.user_id),
        ("agent_type = ?", query.agent_type),
        ("status = ANY (?::text[])", [status.value for status in query.status] or None),
        ("parent_session_id = ?", None if isinstance(parent, Unset) else parent),
        ("tags @> ?::text[]", list(query.tags) or None),
        ("metadata @> ?::jsonb", dumps(query.metadata).decode() if query.metadata else None),
        (f"{query.date_field} >= ?", query.date_from),
        (f"{query.date_field} < ?", query.date_to),
    )
    given = [(condition, value) for condition, value in possible if value is not None]
    conditions = ["NOT deleted", *(each.replace("?", f"${at}") for at, (each, _) in enumerate(given, 1))]
    if parent is None:
        conditions.append("parent_session_id IS NULL")
    return conditions, [value for _, value in given]
