"""What else is known of a session: its state, runs, sub-agents, usage, and where it is stored."""

from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from helix_temporal.inspector import outlines
from helix_temporal.inspector.page_request import PageRequest
from helix_temporal.inspector.pages.frame import get_session, show_session, try_read
from helix_temporal.stores.protocols.threads import Audit
from helix_temporal.views.models import CheckpointList, SessionBranch, StateAt, StateComparison

MAX_VALUES: Final = 150
MAX_BRANCHES: Final = 200
CHECKPOINTS: Final = 50
RUNS: Final = 30


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


async def show_usage(request: Request, page: PageRequest) -> Response:
    """What the session used, or it and its sub-agents, by model and by tool."""
    session = await get_session(request, page)
    descendants = request.query_params.get("descendants") == "1"
    reading = page.views.get_usage(session.overview.session_id, descendants=descendants)
    usage, problem = await try_read(reading)
    models = sorted(usage.by_model.items(), key=lambda pair: -pair[1].total) if usage else []
    tools = sorted(usage.by_tool.items(), key=lambda pair: -pair[1].calls) if usage else []
    return show_session(
        page,
        "usage.html",
        session,
        usage=usage,
        models=models[:60],
        tools=tools[:120],
        descendants=descendants,
        problem=problem,
    )


class AuditText(NamedTuple):
    """The result of verifying a thread, as the page says it."""

    heading: str
    text: str
    tone: str
    findings: tuple[str, ...] = ()


async def show_storage(request: Request, page: PageRequest) -> Response:
    """Where the thread's messages lie; with ``verify=1`` all of them are read and checked as well."""
    session = await get_session(request, page)
    session_id = session.overview.session_id
    place, problem = await try_read(page.views.get_place(session_id))
    audit: AuditText | None = None
    if request.query_params.get("verify") == "1":
        found, away = await try_read(page.views.verify_thread(session_id))
        audit = describe_audit(found, away)
    return show_session(
        page,
        "storage.html",
        session,
        place=place,
        segments=outlines.merge_segments(place.segments) if place else (),
        audit=audit,
        problem=problem,
    )


def describe_audit(audit: Audit | None, problem: str | None) -> AuditText:
    """What a check of a thread has found, in words."""
    if audit is None:
        return AuditText("Not verified.", problem or "There is no archive to be verified.", "wait")
    if audit.problems:
        heading = f"{outlines.count_findings(len(audit.problems))}."
        return AuditText(heading, "The rest of the thread can be read.", "bad", audit.problems[:20])
    later = f" {audit.unarchived} messages are not archived yet." if audit.unarchived else ""
    return AuditText("Sound.", f"Everything was read and is as it was written.{later}", "good")
