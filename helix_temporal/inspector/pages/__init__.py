"""The pages: their paths, and what each shows."""

from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from helix_temporal.inspector.page_request import PageRequest, PageRoute


async def show_sessions(request: Request, page: PageRequest) -> Response:  # noqa: ARG001
    """Sessions by their last change."""
    return HTMLResponse("<!doctype html><title>Sessions</title><h1>Sessions</h1>")


async def show_error(
    request: Request,  # noqa: ARG001
    page: PageRequest | None,  # noqa: ARG001
    status: int,
    error: Exception,  # noqa: ARG001
) -> Response:
    """What kept a page from being shown; ``page`` is None for those who may not look."""
    return HTMLResponse(f"<!doctype html><title>{status}</title><h1>{status}</h1>", status)


ROUTES: Final = (PageRoute("/", "sessions", show_sessions),)
