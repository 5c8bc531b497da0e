"""What the pages have in common: a template filled in, one session's frame, a read that may fail."""

from collections.abc import Awaitable
from typing import Any, TypeVar
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from helix_temporal.errors import ArchiveError, HelixError, InvalidRequestError, StoreUnavailableError
from helix_temporal.inspector.page_request import PageRequest
from helix_temporal.inspector.rendering import render_template
from helix_temporal.views.models import SessionView

R = TypeVar("R")


def show_template(page: PageRequest, template: str, /, status: int = 200, **values: Any) -> Response:
    """A page of this template."""
    given = {
        "page": page,
        "status": status,
        "area": "sessions",
        "temporal_link": TemporalLinks(page),
        **values,
    }
    return HTMLResponse(render_template(template, **given), status)


def show_session(page: PageRequest, template: str, session: SessionView, /, **values: Any) -> Response:
    """A page of one session; its tab has the template's name unless another is given."""
    given = {"tab": template.removesuffix(".html"), **values}
    return show_template(page, template, session=session, **given)


async def get_session(request: Request, page: PageRequest) -> SessionView:
    """The session that the path names.

    Raises:
        SessionNotFoundError: There is none, or the viewer may not see it.
    """
    return await page.views.get_session(request.path_params["session_id"])


async def try_read(reading: Awaitable[R], *also: type[HelixError]) -> tuple[R | None, str | None]:
    """What a read gives, or why it gives nothing: the rest of the page is shown all the same.

    Args:
        reading: The read.
        also: Errors that are told like this too, beside a store that is away and damage.
    """
    told: tuple[type[Exception], ...] = (StoreUnavailableError, ArchiveError, TimeoutError, *also)
    try:
        return await reading, None
    except told as error:
        return None, describe_failure(error)


def describe_failure(error: Exception) -> str:
    """A failure in a sentence for the page."""
    if isinstance(error, InvalidRequestError):
        return str(error)
    if isinstance(error, StoreUnavailableError):
        return f"A store does not answer just now: {error}"
    return f"{type(error).__name__}: {error}" if isinstance(error, HelixError) else "A store took too long."


def read_number(request: Request, name: str) -> int | None:
    """A whole number of the query; None where it is not given.

    Raises:
        InvalidRequestError: It is none.
    """
    text = request.query_params.get(name, "").strip()
    return parse_number(name, text) if text else None


def parse_number(name: str, text: str) -> int:
    """The whole number that a text is; stores count no more digits.

    Raises:
        InvalidRequestError: It is none.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise InvalidRequestError(f"{name}: got {text[:40]!r}, expected a whole number from 0 on")
    return int(text)


class TemporalLinks:
    """Addresses of executions on Temporal's own page; only where its address is set."""

    def __init__(self, page: PageRequest) -> None:
        self._settings = page.settings

    def __call__(self, workflow_id: str, run_id: str | None = None) -> str:
        """The history of an execution."""
        start = (
            f"{self._settings.temporal_ui}/namespaces/{quote(self._settings.namespace, safe='')}/workflows"
        )
        end = f"/{quote(run_id, safe='')}/history" if run_id else ""
        return f"{start}/{quote(workflow_id, safe='')}{end}"
