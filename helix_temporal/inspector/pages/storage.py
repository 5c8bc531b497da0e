"""Where the thread of a session is stored, and whether it is sound."""

from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from helix_temporal.inspector.bars import merge_segments
from helix_temporal.inspector.page_request import PageRequest
from helix_temporal.inspector.pages.frame import get_session, show_session, try_read
from helix_temporal.stores.protocols.threads import Audit


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
        segments=merge_segments(place.segments) if place else (),
        audit=audit,
        problem=problem,
    )


def describe_audit(audit: Audit | None, problem: str | None) -> AuditText:
    """What a check of a thread has found, in words."""
    if audit is None:
        return AuditText("Not verified.", problem or "There is no archive to be verified.", "wait")
    if audit.problems:
        heading = f"{_count_findings(len(audit.problems))}."
        return AuditText(heading, "The rest of the thread can be read.", "bad", audit.problems[:20])
    later = f" {audit.unarchived} messages are not archived yet." if audit.unarchived else ""
    return AuditText("Sound.", f"Everything was read and is as it was written.{later}", "good")


def _count_findings(count: int) -> str:
    """How much is wrong with a thread."""
    return "One thing is wrong" if count == 1 else f"{count} things are wrong"
