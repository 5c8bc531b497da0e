"""The sub-agents' sessions of a session, as the session store lists them."""

from typing import Final

from helix_temporal.models.store_calls import MAX_LIMIT, SessionQuery, SessionSummary
from helix_temporal.stores.protocols.sessions import SessionStore

MAX_CHILDREN: Final = 500
"""Of one session, and sessions of one tree, that are looked at."""


async def list_by_parent(store: SessionStore, session_id: str) -> tuple[dict[str, SessionSummary], bool]:
    """Sessions that have this one as their parent, oldest first; and whether there are more than these.

    Asked for in the order that databases have an index for, which is not this one.
    """
    query: SessionQuery | None = SessionQuery(parent_session_id=session_id, limit=MAX_LIMIT, count=False)
    found: dict[str, SessionSummary] = {}
    while query is not None and len(found) < MAX_CHILDREN:
        page = await store.list_sessions(query)
        found.update((each.session_id, each) for each in page.sessions)
        query = query.model_copy(update={"cursor": page.next_cursor}) if page.next_cursor else None
    oldest_first = sorted(found.values(), key=lambda each: (each.created_at, each.session_id))
    return {each.session_id: each for each in oldest_first}, query is not None


async def count_by_parent(store: SessionStore, session_id: str) -> int:
    """How many sessions have this one as their parent."""
    return (await store.list_sessions(SessionQuery(parent_session_id=session_id, limit=1))).total or 0
