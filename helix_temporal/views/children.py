"""The sub-agents' sessions of a session: by its references, and by the list of the session store."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from helix_temporal.models.states import SessionStatus, SubSessionRef
from helix_temporal.models.store_calls import MAX_LIMIT, SessionQuery, SessionSummary
from helix_temporal.session.projection import is_at_work
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.views.access import ViewedSessions, overview_of
from helix_temporal.views.models import CallStatus, SessionOverview
from helix_temporal.views.problems import UNREADABLE

MAX_CHILDREN: Final = 500
"""Of one session, and sessions of one tree, that are looked at."""
_ENDS: Final[Mapping[SessionStatus, CallStatus]] = {
    SessionStatus.COMPLETED: "done",
    SessionStatus.FAILED: "failed",
    SessionStatus.INTERRUPTED: "failed",
}


@dataclass(frozen=True, slots=True)
class ChildSession:
    """A sub-agent's session; ``thread_id`` is of its messages, where that is known and not its id."""

    overview: SessionOverview
    thread_id: str | None = None


@dataclass(slots=True)
class ChildSessions:
    """Of one session.

    Attributes:
        shown: Those that the viewer may see.
        hidden: Ids of those that the viewer may not see, to be counted.
        left_out: How many were not looked at, because they are too many.
    """

    shown: list[ChildSession] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    left_out: int = 0


async def list_children(viewed: ViewedSessions, session_id: str) -> ChildSessions:
    """Those that a session refers to, in their order, then others that have it as their parent.

    One that was deleted, or runs elsewhere, is not there.
    """
    found = ChildSessions()
    if viewed.sessions is None:
        return found
    refs = {each.sub_session_id: each for each in await viewed.sessions.list_sub_session_refs(session_id)}
    summaries, more = await _list_by_parent(viewed.sessions, session_id)
    total = await _count_by_parent(viewed.sessions, session_id) if more else len(summaries)
    names = list(dict.fromkeys([*refs, *summaries]))
    looked_at = names[:MAX_CHILDREN]
    found.left_out = max(total, len(names)) - len(looked_at)
    for name in looked_at:
        if name in summaries:
            child: ChildSession | None = ChildSession(overview_of(summaries[name]))
        else:
            child = await _find_referred(viewed, refs[name])
        if child is None:
            continue
        if viewed.is_admitted(child.overview):
            found.shown.append(child)
        else:
            found.hidden.append(name)
    return found


async def find_ended_children(viewed: ViewedSessions, refs: Iterable[SubSessionRef]) -> dict[str, CallStatus]:
    """How sub-agents have ended that their caller's references have at work: no step has taken their results.

    One whose thread goes on over several calls has ended before: its end must be newer than its reference.
    """
    ended: dict[str, CallStatus] = {}
    for ref in refs:
        if viewed.sessions is None or ref.remote is not None or not is_at_work(ref):
            continue
        try:
            state = await viewed.sessions.load_state(ref.sub_session_id)
        except UNREADABLE:
            continue
        if state is not None and state.status in _ENDS and state.updated_at >= ref.updated_at:
            ended[ref.sub_session_id] = _ENDS[state.status]
    return ended


async def _find_referred(viewed: ViewedSessions, ref: SubSessionRef) -> ChildSession | None:
    """A session that its reference alone leads to; None if it was deleted, or runs elsewhere."""
    if ref.remote is not None:
        return None
    state = await viewed.find_stored_state(ref.sub_session_id)
    return None if state is None else ChildSession(overview_of(state), state.thread_id)


async def _list_by_parent(store: SessionStore, session_id: str) -> tuple[dict[str, SessionSummary], bool]:
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


async def _count_by_parent(store: SessionStore, session_id: str) -> int:
    """How many sessions have this one as their parent."""
    return (await store.list_sessions(SessionQuery(parent_session_id=session_id, limit=1))).total or 0
