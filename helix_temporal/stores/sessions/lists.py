"""Lists over all sessions."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

from helix_temporal.errors import HelixError, StoreUnavailableError
from helix_temporal.models.states import OwnedPendingCall
from helix_temporal.models.store_calls import (
    MAX_LIMIT,
    DueSession,
    ExpiredSession,
    Page,
    SessionPage,
    SessionQuery,
)
from helix_temporal.stores.paging import decode_cursor, encode_cursor
from helix_temporal.stores.sessions.base import SessionStoreBase
from helix_temporal.stores.sessions.call_answers import expired_calls
from helix_temporal.stores.sessions.checks import checked_count, checked_limit, revalidate_model

logger = logging.getLogger(__name__)

T = TypeVar("T", DueSession, ExpiredSession)

_EVERYTHING: Final = SessionQuery()
_EXPIRED: Final = "sessions.expired"
_DUE: Final = "sessions.due"
_CLEANUP: Final = "sessions.cleanup"
_LAST: Final = 2**63 - 1
"""The latest time that every backend can compare."""


async def find_expired_pending(
    store: SessionStoreBase, now: int, *, limit: int = MAX_LIMIT
) -> list[OwnedPendingCall]:
    """See `SessionStore.find_expired_pending`; the session with the earliest deadline first."""
    limit, before = checked_limit(limit), _expiry_bound(checked_count(now, "now"))
    found: list[OwnedPendingCall] = []
    after: tuple[int, str] | None = None
    while len(found) < limit:
        due = await store.loop.rows.list_due(before, limit=limit, after=after)
        for each in due:
            found += await _list_expired_calls(store, each.session_id, now)
        if len(due) < limit:
            break
        after = due[-1].due_at, due[-1].session_id
    return found[:limit]


async def _list_expired_calls(store: SessionStoreBase, session_id: str, now: int) -> list[OwnedPendingCall]:
    """Those of one session; a damaged one is named in the log, and keeps nobody from the others."""
    try:
        state = (await store.view_session(session_id)).state
    except StoreUnavailableError:
        raise
    except HelixError as error:
        logger.warning("session %r: its expired calls are left out: %s", session_id, error)
        return []
    return [] if state is None else expired_calls(state, now)


async def list_due(
    store: SessionStoreBase, now: int | None = None, *, limit: int = MAX_LIMIT, cursor: str | None = None
) -> Page[DueSession]:
    """See `SessionStore.list_due`; the page has no total."""
    return await _list_before(
        store, store.loop.rows.list_due, now, limit, cursor, _DUE, lambda each: each.due_at
    )


async def list_sessions(store: SessionStoreBase, query: SessionQuery = _EVERYTHING) -> SessionPage:
    """See `SessionStore.list_sessions`."""
    return await store.loop.rows.list_sessions(revalidate_model(query, SessionQuery))


def iter_session_ids(store: SessionStoreBase) -> AsyncIterator[str]:
    """See `SessionStore.iter_session_ids`."""
    return store.loop.rows.scan()


async def list_expired(
    store: SessionStoreBase, now: int | None = None, *, limit: int = MAX_LIMIT, cursor: str | None = None
) -> Page[ExpiredSession]:
    """See `SessionStore.list_expired`; the page has no total."""
    return await _list_before(
        store, store.loop.rows.list_expired, now, limit, cursor, _EXPIRED, lambda each: each.expires_at or 0
    )


async def _list_before(
    store: SessionStoreBase,
    read: Callable[..., Awaitable[tuple[T, ...]]],
    now: int | None,
    limit: int,
    cursor: str | None,
    scope: str,
    time_of: Callable[[T], int],
) -> Page[T]:
    """A page of sessions whose time has come, the earliest first."""
    limit = checked_limit(limit)
    after = None if cursor is None else decode_cursor(scope, cursor)
    before = _expiry_bound(await store.loop.rows.now() if now is None else checked_count(now, "now"))
    found = await read(before, limit=limit + 1, after=after)
    last = found[limit - 1] if len(found) > limit else None
    return Page(
        items=found[:limit],
        next_cursor=None if last is None else encode_cursor(scope, time_of(last), last.session_id),
        has_more=last is not None,
    )


async def list_cleanup_pending(
    store: SessionStoreBase, *, limit: int = MAX_LIMIT, cursor: str | None = None
) -> Page[ExpiredSession]:
    """See `SessionStore.list_cleanup_pending`, by id; without the time, and without a total."""
    limit = checked_limit(limit)
    after = None if cursor is None else decode_cursor(_CLEANUP, cursor)[1]
    found = await store.loop.rows.list_cleanup_pending(limit=limit + 1, after=after)
    shown, more = found[:limit], len(found) > limit
    return Page(
        items=tuple(ExpiredSession(session_id=each, expires_at=None, cleanup_pending=True) for each in shown),
        next_cursor=encode_cursor(_CLEANUP, 0, shown[-1]) if more else None,
        has_more=more,
    )


async def purge_operations(store: SessionStoreBase, *, older_than_ms: int, limit: int = 1000) -> int:
    """See `SessionStore.purge_operations`."""
    age, most = checked_count(older_than_ms, "older_than_ms"), checked_count(limit, "limit")
    before = await store.loop.rows.now() - age
    return await store.loop.rows.purge_operations(before, limit=most) if before > 0 and most else 0


def _expiry_bound(now: int) -> int:
    """The time before which everything has expired: at the deadline itself, too."""
    return min(now + 1, _LAST)
