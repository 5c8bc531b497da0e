"""A session with its sub-agents."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from helix_temporal.inspector.page_request import PageRequest
from helix_temporal.inspector.pages.frame import get_session, show_session, try_read
from helix_temporal.views.tree import list_branches

MAX_BRANCHES: Final = 200


async def show_tree(request: Request, page: PageRequest) -> Response:
    """The session with its sub-agents and what all of them used."""
    session = await get_session(request, page)
    branch, problem = await try_read(page.views.get_tree(session.overview.session_id))
    rows = list_branches(branch) if branch else []
    return show_session(
        page,
        "tree.html",
        session,
        rows=rows[:MAX_BRANCHES],
        cut_rows=max(0, len(rows) - MAX_BRANCHES),
        problem=problem,
    )
