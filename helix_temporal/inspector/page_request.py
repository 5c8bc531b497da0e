"""What a page is given: what it may show, to whom, and how it names its links."""

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from temporalio.client import Client

from helix_temporal.inspector.access import Action, Viewer, cookie_name, cookie_path
from helix_temporal.views import SessionViews


@dataclass(frozen=True, slots=True)
class InspectorSettings:
    """What holds for all pages.

    Attributes:
        actions: Approvals, answers and stops may be given here, by viewers who may.
        temporal: For the maintenance schedules; None: this inspector has no connection to Temporal.
        temporal_ui: Address of Temporal's own page, without a slash at its end.
        namespace: Temporal's, in links to its page.
    """

    actions: bool = False
    temporal: Client | None = None
    temporal_ui: str | None = None
    namespace: str = "default"


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A viewer's request for a page.

    Attributes:
        views: Reads what the viewer may see, and nothing else.
        csrf: The value of the hidden field ``csrf`` in every form that posts.
    """

    views: SessionViews
    viewer: Viewer
    settings: InspectorSettings
    csrf: str

    def may(self, action: Action) -> bool:
        """Whether to show the form for it."""
        return self.settings.actions and action in self.viewer.may


Endpoint = Callable[[Request, PageRequest], Awaitable[Response]]


class PageRoute(NamedTuple):
    """A page: ``GET path``; the id of its session is ``{session}`` in it, as `links.encode_id` writes it."""

    path: str
    name: str
    endpoint: Endpoint


def csrf_value(request: Request) -> str:
    """The value that forms carry: of the browser's cookie, or a new one that `keep_csrf` sets."""
    return request.cookies.get(cookie_name(request, "form")) or secrets.token_urlsafe(24)


def keep_csrf(request: Request, response: Response, value: str) -> None:
    """Set the cookie that a form's hidden field is compared with."""
    if request.cookies.get(cookie_name(request, "form")) != value:
        response.set_cookie(
            cookie_name(request, "form"),
            value,
            path=cookie_path(request),
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
