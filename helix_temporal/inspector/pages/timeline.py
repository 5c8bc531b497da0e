"""The runs of a session, and who holds its thread."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from helix_temporal.inspector.page_request import PageRequest
from helix_temporal.inspector.pages.frame import get_session, show_session, try_read

RUNS: Final = 30


async def show_timeline(request: Request, page: PageRequest) -> Response:
    """The session's runs, newest first, also discarded ones, and the fence of its thread."""
    session = await get_session(request, page)
    session_id = session.overview.session_id
    cursor = request.query_params.get("cursor") or None
    found, problem = await try_read(page.views.list_runs(session_id, limit=RUNS, cursor=cursor))
    place, away = await try_read(page.views.get_place(session_id))
    following = found and found.next_cursor
    return show_session(
        page,
        "timeline.html",
        session,
        runs=found.runs if found else (),
        place=place,
        problem=problem or (found and found.problem) or away,
        first=page.link("timeline", session_id=session_id) if cursor else None,
        next=page.link("timeline", {"cursor": following}, session_id=session_id) if following else None,
    )
