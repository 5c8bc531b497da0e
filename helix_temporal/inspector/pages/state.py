"""The application's values of a session, at its checkpoints."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from helix_temporal.inspector.page_request import PageRequest
from helix_temporal.inspector.pages.frame import get_session, show_session, try_read
from helix_temporal.views.models import CheckpointList, StateAt, StateComparison

MAX_VALUES: Final = 150
CHECKPOINTS: Final = 50


async def show_state(request: Request, page: PageRequest) -> Response:
    """The application's values, at a checkpoint or now, and how two states differ."""
    session = await get_session(request, page)
    session_id = session.overview.session_id
    after, before = request.query_params.get("after") or None, request.query_params.get("before") or None
    cursor = request.query_params.get("cursor") or None
    points, problem = await try_read(
        page.views.list_checkpoints(session_id, limit=CHECKPOINTS, cursor=cursor)
    )
    points = points or CheckpointList(session_id=session_id)
    state: StateAt | None = None
    comparison: StateComparison | None = None
    if before is not None:
        comparison = await page.views.compare_states(session_id, before, after)
    else:
        state = await page.views.get_state(session_id, after)
    values = list(state.values.items()) if state else []
    following = {"after": after, "before": before, "cursor": points.next_cursor}
    return show_session(
        page,
        "state.html",
        session,
        checkpoints=points,
        known={each.checkpoint_id for each in points.checkpoints},
        after=after,
        before=before,
        state=state,
        values=values[:MAX_VALUES],
        hidden_values=max(0, len(values) - MAX_VALUES),
        comparison=comparison,
        problem=problem,
        next=page.link("state", following, session_id=session_id) if points.next_cursor else None,
    )
