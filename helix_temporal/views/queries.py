"""From a filter of people to questions of the session store: lists of sessions, by pages."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from helix_temporal.errors import InvalidRequestError, ThreadNotFoundError
from helix_temporal.models.store_calls import MAX_LIMIT, OrderBy, SessionPage, SessionQuery, SessionSummary
from helix_temporal.stores.paging import encode_cursor
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.views.access import ViewedSessions, overview_of
from helix_temporal.views.filters import EVERY_SESSION, SearchPlan, SessionFilter, plan_search
from helix_temporal.views.models import SessionList, SessionOverview
from helix_temporal.views.problems import PARTIAL_READ_ERRORS

_LOOKED_AT: Final = 2_000
"""Sessions that one page looks at, at most: where few of them match it comes short, with a cursor."""
_AT_ONCE: Final = 16
"""Sessions about which the stores are asked side by side."""


@dataclass(slots=True)
class ListProblems:
    """What a list leaves out, as far as it was read.

    Attributes:
        damaged: Sessions of which what is stored cannot be read.
    """

    damaged: int = 0

    def add_page(self, viewed: ViewedSessions, page: SessionPage) -> None:
        """Count those of a store's page; a viewer whose rights the store does not know is told of none."""
        if viewed.admits_all or viewed.reads != EVERY_SESSION:
            self.damaged += page.damaged

    def describe(self) -> str | None:
        """It in a line; None where nothing is left out."""
        if not self.damaged:
            return None
        left_out = "1 session is" if self.damaged == 1 else f"{self.damaged} sessions are"
        return f"{left_out} left out of the list: damaged, or a newer version's; the log says which"


def require_session_store(viewed: ViewedSessions) -> SessionStore:
    """The session store.

    Raises:
        InvalidRequestError: There is none, so nobody can list sessions.
    """
    if viewed.sessions is None:
        raise InvalidRequestError(
            "the workers have no session store (HELIX_SESSION_STORE is 'none'), which would list sessions; "
            "name a session by its id"
        )
    return viewed.sessions


async def list_sessions(
    viewed: ViewedSessions, wanted: SessionFilter, limit: int, cursor: str | None
) -> SessionList:
    """A page of the sessions that match and may be seen, newest change first.

    Raises:
        InvalidRequestError: The limit is not 1 to 200, or the filter contradicts itself.
        InvalidCursorError: The cursor is none of this list.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidRequestError(f"limit {limit}: from 1 to {MAX_LIMIT} allowed")
    store, search = require_session_store(viewed), plan_search(wanted, viewed.reads)
    if search.query is None or await _is_parent_hidden(viewed, wanted):
        return SessionList()
    found: list[SessionOverview] = []
    parents: dict[str, str | None] = {}
    problems = ListProblems()
    query = search.query.model_copy(update={"limit": limit, "cursor": cursor})
    for _ in range(0, _LOOKED_AT, MAX_LIMIT):
        page = await store.list_sessions(query)
        problems.add_page(viewed, page)
        for summary in await _select_matching(viewed, search, page.sessions):
            found.append(await viewed.show_overview(summary, parents))
            if len(found) == limit:
                more = page.has_more or summary is not page.sessions[-1]
                return SessionList(
                    sessions=tuple(found),
                    next_cursor=_cursor_behind(summary) if more else None,
                    problem=problems.describe(),
                )
        cursor = page.next_cursor
        if cursor is None:
            break
        # Few match: larger pages from here on.
        query = query.model_copy(update={"limit": MAX_LIMIT, "cursor": cursor})
    return SessionList(sessions=tuple(found), next_cursor=cursor, problem=problems.describe())


async def iterate_sessions(
    viewed: ViewedSessions, wanted: SessionFilter, problems: ListProblems | None = None
) -> AsyncIterator[SessionOverview]:
    """All sessions that match and may be seen; one page of them is in memory at a time."""
    store, search = require_session_store(viewed), plan_search(wanted, viewed.reads)
    if search.query is None or await _is_parent_hidden(viewed, wanted):
        return
    parents: dict[str, str | None] = {}
    query: SessionQuery | None = search.query.model_copy(update={"limit": MAX_LIMIT})
    while query is not None:
        page = await store.list_sessions(query)
        if problems is not None:
            problems.add_page(viewed, page)
        for summary in await _select_matching(viewed, search, page.sessions):
            yield await viewed.show_overview(summary, parents)
        query = query.model_copy(update={"cursor": page.next_cursor}) if page.next_cursor else None


async def _is_parent_hidden(viewed: ViewedSessions, wanted: SessionFilter) -> bool:
    """Whether children are asked for of a session that the viewer may not see: nobody is told of any."""
    parent = wanted.parent_session_id
    return parent is not None and await viewed.hide_unseen_id(parent) is None


def _cursor_behind(summary: SessionSummary) -> str:
    """Where a list goes on behind a session; the store's own cursor is at the end of its page."""
    return encode_cursor(OrderBy().cursor_scope, summary.updated_at, summary.session_id)


async def _select_matching(
    viewed: ViewedSessions, search: SearchPlan, summaries: Sequence[SessionSummary]
) -> list[SessionSummary]:
    """Those that may be seen and match what the session store cannot tell, in their order."""
    seen = [each for each in summaries if viewed.is_admitted(overview_of(each))]
    if not search.behind:
        return seen
    slots = asyncio.Semaphore(_AT_ONCE)

    async def check(summary: SessionSummary) -> bool:
        async with slots:
            return await _is_behind(viewed, summary.session_id)

    behind = await asyncio.gather(*(check(each) for each in seen))
    return [each for each, wanted in zip(seen, behind, strict=True) if wanted]


async def _is_behind(viewed: ViewedSessions, session_id: str) -> bool:
    """Whether the archive lacks messages of a session; without an archive, none does.

    The archive is only asked about those of which the hot store does not know that it has all.
    """
    if viewed.sessions is None or not viewed.threads.archives:
        return False
    try:
        state = await viewed.sessions.load_state(session_id)
        thread_id = session_id if state is None else state.messages_thread_id
        header = await viewed.threads.read_hot_header(thread_id)
        if header is None or header.deleted or header.archived >= header.head.position:
            return False
        facts = await viewed.threads.read_facts(thread_id)
    except ThreadNotFoundError:
        return False
    except PARTIAL_READ_ERRORS:
        return True  # it does not answer, or is damaged: somebody has to look
    return facts.hot and facts.archived < facts.head.position
