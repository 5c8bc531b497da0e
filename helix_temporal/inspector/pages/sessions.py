"""The list of sessions, the way to one by its id, and those that wait for somebody."""

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from helix_temporal.errors import InvalidRequestError
from helix_temporal.inspector.list_query import read_query
from helix_temporal.inspector.page_request import PageRequest
from helix_temporal.inspector.pages.frame import show_template, try_read
from helix_temporal.inspector.rendering import read_clock
from helix_temporal.views.filters import SessionFilter
from helix_temporal.views.models import SessionList, SessionOverview, SessionView

PAGE: Final = 50
WAITING_PAGE: Final = 20


async def show_sessions(request: Request, page: PageRequest) -> Response:
    """Sessions by their last change, filtered by the address."""
    query = read_query(request.query_params, read_clock())
    cursor = request.query_params.get("cursor") or None
    listing = page.views.list_sessions(query.sessions, limit=PAGE, cursor=cursor)
    found, problem = await try_read(listing, InvalidRequestError)
    found = found or SessionList(problem=problem)
    following = found.next_cursor and page.link("sessions", query.pairs(cursor=found.next_cursor))
    first = page.link("sessions", query.pairs()) if cursor else None
    return show_template(
        page,
        "sessions.html",
        query=query,
        sessions=found.sessions,
        problem=found.problem,
        first=first,
        next=following,
    )


async def open_session(request: Request, page: PageRequest) -> Response:
    """To the session whose id was typed."""
    session_id = request.query_params.get("id", "").strip()
    there = page.link("conversation", session_id=session_id) if session_id else page.link("sessions")
    return RedirectResponse(there, 303)


async def show_waiting(request: Request, page: PageRequest) -> Response:
    """Sessions that wait for a person, a client or a sub-agent, with what for."""
    cursor = request.query_params.get("cursor") or None
    listing = page.views.list_sessions(SessionFilter(need="waiting"), limit=WAITING_PAGE, cursor=cursor)
    found, problem = await try_read(listing, InvalidRequestError)
    found = found or SessionList(problem=problem)
    sessions = await asyncio.gather(*(_read_waiting(page, each) for each in found.sessions))
    following = found.next_cursor and page.link("waiting", {"cursor": found.next_cursor})
    return show_template(
        page, "waiting.html", area="waiting", sessions=sessions, problem=found.problem, next=following
    )


async def _read_waiting(page: PageRequest, overview: SessionOverview) -> SessionView:
    session, problem = await try_read(page.views.get_session(overview.session_id))
    return session or SessionView(overview=overview, problem=problem)
