"""What a page is given: what it may show, to whom, and how it names its links."""

import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Router
from temporalio.client import Client

from helix_temporal.inspector.access import Action, Viewer, read_cookie, set_cookie
from helix_temporal.views import SessionViews

_KEPT: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_SEGMENT: Final = re.compile(r"(?:[A-Za-z0-9_-]|~[0-9a-f]{2})+")


class IdConvertor(Convertor[str]):
    """An id as one part of a path: letters, digits, ``_`` and ``-`` stay, each other byte is ``~hh``.

    Servers decode ``%2F`` before the path is matched, and browsers take ``..`` away: neither is left in it.
    """

    regex = "[A-Za-z0-9_~-]+"

    def convert(self, value: str) -> str:
        """The id that a part of a path stands for.

        Raises:
            HTTPException: 404: it stands for none.
        """
        if not _SEGMENT.fullmatch(value):
            raise HTTPException(404)
        raw = re.sub(r"~([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), value).encode("latin-1")
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise HTTPException(404) from None

    def to_string(self, value: str) -> str:
        """As it stands in paths."""
        return "".join(
            chr(byte) if byte in _KEPT else f"~{byte:02x}" for byte in value.encode("utf-8", "replace")
        )


class NumberConvertor(Convertor[int]):
    """A whole number from 0 on, as one part of a path; of more digits than stores count there is no page."""

    regex = "[0-9]{1,15}"

    def convert(self, value: str) -> int:
        """The number."""
        return int(value)

    def to_string(self, value: int) -> str:
        """As it stands in paths."""
        return str(value)


register_url_convertor("helix_id", IdConvertor())
register_url_convertor("helix_number", NumberConvertor())


@dataclass(frozen=True, slots=True)
class InspectorSettings:
    """What holds for all pages.

    Attributes:
        actions: Approvals, answers and stops may be given here, by viewers who may.
        temporal: For the maintenance schedules; None: this inspector has no connection to Temporal.
        temporal_ui: Address of Temporal's own page, without a slash at its end.
    """

    actions: bool = False
    temporal: Client | None = None
    temporal_ui: str | None = None

    @property
    def namespace(self) -> str:
        """Temporal's, in links to its page."""
        return "default" if self.temporal is None else self.temporal.namespace


class PageLinks:
    """Paths of the pages, wherever the inspector is mounted."""

    def __init__(self, router: Router, root: str = "") -> None:
        self._router, self._root = router, root.rstrip("/")

    def link(self, page: str, query: Mapping[str, Any] | None = None, /, **params: Any) -> str:
        """The path of a page by its route's name; what is None in the query is left out."""
        path = self._root + str(self._router.url_path_for(page, **params))
        pairs = [(name, value) for name, value in (query or {}).items() if value is not None]
        return f"{path}?{urlencode(pairs, doseq=True)}" if pairs else path

    def static(self, name: str) -> str:
        """The path of a static file; it changes with the file, so browsers may keep it for good."""
        return self.link("static", path=name)


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
    links: PageLinks

    def may(self, action: Action) -> bool:
        """Whether to show the form for it."""
        return self.settings.actions and action in self.viewer.may

    def link(self, page: str, query: Mapping[str, Any] | None = None, /, **params: Any) -> str:
        """As `PageLinks.link`."""
        return self.links.link(page, query, **params)

    def static(self, name: str) -> str:
        """As `PageLinks.static`."""
        return self.links.static(name)


Endpoint = Callable[[Request, PageRequest], Awaitable[Response]]


class PageRoute(NamedTuple):
    """A page: ``GET path``.  Ids in paths are ``{session_id:helix_id}``."""

    path: str
    name: str
    endpoint: Endpoint


def csrf_value(request: Request) -> str:
    """The value that forms carry: of the browser's cookie, or a new one that `keep_csrf` sets."""
    return read_cookie(request, "form") or secrets.token_urlsafe(24)


def keep_csrf(request: Request, response: Response, value: str) -> None:
    """Set the cookie that a form's hidden field is compared with."""
    if read_cookie(request, "form") != value:
        set_cookie(request, response, "form", value)
