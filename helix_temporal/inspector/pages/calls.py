"""Tool calls over sessions: which failed, where, and with what."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final, cast

from starlette.requests import Request
from starlette.responses import Response

from helix_temporal.errors import HelixError
from helix_temporal.inspector.formats import count_of
from helix_temporal.inspector.list_query import ListQuery, read_query, widen_for_calls
from helix_temporal.inspector.page_request import PageRequest
from helix_temporal.inspector.pages.frame import describe_failure, show_template
from helix_temporal.inspector.rendering import read_clock
from helix_temporal.views.calls import SearchProblems
from helix_temporal.views.models import FoundCall

MOST: Final = 60
SECONDS: Final = 4.0
"""So long a page looks for calls; what it has found by then is shown."""


async def show_calls(request: Request, page: PageRequest) -> Response:
    """Calls that the address asks for, of the sessions with the newest changes first."""
    query = read_query(request.query_params, read_clock())
    calls: list[FoundCall] = []
    unread = SearchProblems()
    stopped = problem = None
    try:
        async with asyncio.timeout(SECONDS):
            stopped = await _collect_calls(page, query, calls, unread)
    except TimeoutError:
        stopped = describe_stop(unread.searched, found=bool(calls))
    except HelixError as error:
        problem = describe_failure(error)
    return show_template(
        page,
        "calls.html",
        area="calls",
        query=query,
        calls=calls,
        stopped=stopped,
        problem=problem,
        unread=unread.describe(),
    )


def describe_stop(searched: int, *, found: bool) -> str:
    """What a page says whose time ran out: where it got nowhere, a narrower filter may not help.

    Args:
        searched: Sessions that were looked through.
        found: Whether it has calls of the next one.
    """
    begin = f"Looked for {SECONDS:.0f} seconds"
    if not searched and not found:
        return (
            f"{begin} and got through no session: a store does not answer just now (helix-temporal doctor "
            "tells which), or the first conversation is very long. Calls may be missing."
        )
    if not searched:
        return f"{begin}, and not through all of one session. Narrow the filter by time or tool."
    return (
        f"{begin}, through {count_of(searched, 'session')}; older ones were not looked at. "
        "Narrow the filter by user, agent or time."
    )


async def _collect_calls(
    page: PageRequest, query: ListQuery, calls: list[FoundCall], unread: SearchProblems
) -> str | None:
    """Put what is found into ``calls``; why it ended before all sessions were looked at, if it did."""
    async with aclosing(cast("AsyncGenerator[FoundCall]", _find_calls(page, query, unread))) as source:
        async for each in source:
            calls.append(each)
            if len(calls) >= MOST:
                return f"The first {MOST} are shown. Narrow the filter to see others."
    return None


def _find_calls(page: PageRequest, query: ListQuery, unread: SearchProblems) -> AsyncIterator[FoundCall]:
    tool, session_id = query.given("tool") or None, query.given("session")
    if session_id:
        return page.views.find_session_calls(
            session_id,
            tool=tool,
            failed=query.failed,
            since=query.since,
            until=query.until,
            problems=unread,
        )
    return page.views.find_calls(
        widen_for_calls(query),
        tool=tool,
        failed=query.failed,
        since=query.since,
        until=query.until,
        problems=unread,
    )
