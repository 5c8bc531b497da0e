"""A session with its sub-agents."""

from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from helix_temporal.inspector.page_request import PageRequest
from helix_temporal.inspector.pages.frame import get_session, show_session, try_read
from helix_temporal.views.models import SessionBranch

MAX_BRANCHES: Final = 200


class BranchRow(NamedTuple):
    """A session of a tree in its table: how deep it lies, from 0."""

    depth: int
    branch: SessionBranch


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


def list_branches(branch: SessionBranch, depth: int = 0) -> list[BranchRow]:
    """A tree as the rows of a table, each parent before its children."""
    below = [row for child in branch.children for row in list_branches(child, depth + 1)]
    return [BranchRow(depth, branch), *below]
