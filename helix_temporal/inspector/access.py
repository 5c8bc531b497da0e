"""Who may look at what, and do what: an application's `authorise`, or the token of a link on this machine."""

import hmac
import inspect
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final, Literal
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from helix_temporal.errors import InvalidConfigError
from helix_temporal.views.filters import Admits, SessionFilter

_log = logging.getLogger(__name__)

Action = Literal["approve", "answer", "stop"]
ACTIONS: Final[frozenset[Action]] = frozenset({"approve", "answer", "stop"})


@dataclass(frozen=True, slots=True)
class Viewer:
    """Somebody who may look.

    Attributes:
        reads: Which sessions exist for them: a filter, or a function of a session.  All others are as if they
            were not there: in lists, by their id, as a sub-agent's, live, and for actions.
        may: What they may do where actions are on.
        name: For limits per viewer and the log; shown to nobody else.  Without one only the limits of all
            viewers together hold.

    Raises:
        InvalidConfigError: ``reads`` is neither, ``None`` for example, or is an async function; or ``may``
            has something else than actions.
    """

    reads: SessionFilter | Admits = field(default_factory=SessionFilter)
    may: frozenset[Action] = frozenset()
    name: str = ""

    def __post_init__(self) -> None:
        # What an application gives is not what the annotations say.
        reads: object = self.reads
        may: object = self.may
        if not isinstance(reads, SessionFilter) and not callable(reads):
            raise InvalidConfigError(
                f"Viewer.reads: SessionFilter or a function of a session expected, got {type(reads).__name__}"
            )
        if inspect.iscoroutinefunction(reads):
            raise InvalidConfigError("Viewer.reads: the function must not be async")
        if isinstance(may, str) or not ACTIONS.issuperset(self.may):
            raise InvalidConfigError(f"Viewer.may: a set of {sorted(ACTIONS)} expected, got {may!r}")

    @property
    def sees_everything(self) -> bool:
        """Whether every session exists for them, and with them what is the deployment's: its schedules."""
        return self.reads == SessionFilter()


Authorise = Callable[[Request], "Viewer | Awaitable[Viewer | None] | None"]
"""Who asks; None refuses.  May raise `starlette.exceptions.HTTPException`, such as a redirect to a login."""


async def find_viewer(authorise: Authorise, request: Request) -> Viewer:
    """Who asks.

    Raises:
        HTTPException: 403: nobody who may look.
    """
    answer = authorise(request)
    viewer: object = await answer if inspect.isawaitable(answer) else answer
    if isinstance(viewer, Viewer):
        return viewer
    if viewer is not None:
        _log.warning("authorise returned %s in place of a Viewer: refused", type(viewer).__name__)
    raise HTTPException(403)


LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class LocalAccess:
    """Access for whoever has the link that was printed, on this machine.

    The link's token is exchanged for a cookie at its first use, so that it stays out of the history, of
    ``Referer`` and of what is copied from the address bar.

    Args:
        token: A random one by default.
        may: What the holder of the link may do where actions are on.
    """

    def __init__(self, token: str | None = None, *, may: frozenset[Action] = ACTIONS) -> None:
        self.token = secrets.token_urlsafe(32) if token is None else token
        self._viewer = Viewer(may=may, name="local")

    def __call__(self, request: Request) -> Viewer | None:
        """The viewer, if the request has the token as a cookie or in its link."""
        is_known = _is_from_here(request) and self._has_token(read_cookie(request, "token"))
        return self._viewer if is_known else None

    def exchange_token(self, request: Request) -> Response | None:
        """A link with the token leads to the same page without it, and leaves a cookie; None: it has none.

        Whoever has the cookie already is led there from a link with another token, too.

        Raises:
            HTTPException: 403: the token is another one.
        """
        if "token" not in request.query_params:
            return None
        is_known = _is_from_here(request) and self._has_token(request.query_params["token"])
        if not is_known and self(request) is None:
            raise HTTPException(403)
        rest = urlencode([pair for pair in request.query_params.multi_items() if pair[0] != "token"])
        path = request.scope["path"].replace("\\", "/")
        # Two slashes at the begin would name another host.
        there = "/" + path.lstrip("/") + (f"?{rest}" if rest else "")
        response = RedirectResponse(there, 303)
        set_cookie(request, response, "token", self.token)
        return response

    def _has_token(self, given: str | None) -> bool:
        return given is not None and hmac.compare_digest(given.encode(), self.token.encode())


def _is_from_here(request: Request) -> bool:
    return request.client is not None and is_loopback(request.client.host)


def read_cookie(request: Request, name: str) -> str | None:
    """The value of a cookie that `set_cookie` has set."""
    return request.cookies.get(_name_cookie(request, name))


def set_cookie(request: Request, response: Response, name: str, value: str) -> None:
    """Set a cookie for this application alone, and for no script."""
    response.set_cookie(
        _name_cookie(request, name),
        value,
        # Others on the host don't get it.
        path=request.scope.get("root_path") or "/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )


def _name_cookie(request: Request, name: str) -> str:
    """On this machine a cookie of this port's: browsers send cookies to all ports of a host.

    Behind a balancer the next request may get to a server on another port, and each knows who asks.
    """
    is_local = isinstance(request.app.state.access, LocalAccess)
    port = find_port(request.scope) if is_local else None
    return f"helix_inspector_{name}_{port}" if port else f"helix_inspector_{name}"


def find_port(scope: Scope) -> int | None:
    """The port of the server that got a request."""
    server = scope.get("server")
    return server[1] if server else None
