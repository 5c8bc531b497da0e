"""Who may look at what, and do what: an application's `authorise`, or the token of a link on this machine."""

import hmac
import inspect
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Final, Literal, cast
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from helix_temporal.agents import Agent
from helix_temporal.client import ReadableStores
from helix_temporal.errors import InvalidConfigError
from helix_temporal.views import SessionViews
from helix_temporal.views.access import Admits
from helix_temporal.views.filters import SessionFilter
from helix_temporal.views.models import FoundCall, SessionList, SessionOverview
from helix_temporal.views.sessions import EVERY_SESSION

Action = Literal["approve", "answer", "stop"]
ACTIONS: Final[frozenset[Action]] = frozenset({"approve", "answer", "stop"})


@dataclass(frozen=True, slots=True)
class Viewer:
    """Somebody who may look.

    Attributes:
        reads: Which sessions exist for them: a filter, or a function of a session.  All others are as if they
            were not there: in lists, by their id, as a sub-agent's, live, and for actions.
        may: What they may do where actions are on.
        name: For limits per viewer and the log; shown to nobody else.
    """

    reads: SessionFilter | Admits = field(default_factory=SessionFilter)
    may: frozenset[Action] = frozenset()
    name: str = ""


Authorise = Callable[[Request], "Viewer | Awaitable[Viewer | None] | None"]
"""Who asks; None refuses.  May raise `starlette.exceptions.HTTPException`, such as a redirect to a login."""


def admits_by(reads: SessionFilter | Admits) -> Admits:
    """Whether a session is one of these.

    Raises:
        InvalidConfigError: The filter asks for what no single session tells by itself.
    """
    if not isinstance(reads, SessionFilter):
        return reads
    if reads.need is not None:
        raise InvalidConfigError(
            f"Viewer.reads: need={reads.need!r} says what a session waits for, which changes; "
            "give a user, an agent, tags, metadata, or a function"
        )
    return lambda session: _fits(session, reads)


def narrow_filter(wanted: SessionFilter, reads: SessionFilter) -> SessionFilter | None:
    """The sessions that match both, so that a store is asked for these alone; None: there can be none.

    It need not say all that ``reads`` does: each session is looked at besides.
    """
    same = ("user_id", "agent", "parent_session_id")
    if any(None not in {a := getattr(wanted, name), b := getattr(reads, name)} and a != b for name in same):
        return None
    metadata = {**wanted.metadata, **reads.metadata}
    status = tuple(each for each in wanted.status or reads.status if not reads.status or each in reads.status)
    if wanted.metadata.items() - metadata.items() or (reads.status and not status):
        return None
    starts = [each for each in (wanted.since, reads.since) if each is not None]
    ends = [each for each in (wanted.until, reads.until) if each is not None]
    both = {
        name: getattr(reads, name) if getattr(wanted, name) is None else getattr(wanted, name)
        for name in same
    }
    return wanted.model_copy(
        update={
            **both,
            "metadata": metadata,
            "status": status,
            "tags": tuple(dict.fromkeys((*wanted.tags, *reads.tags))),
            "since": max(starts, default=None),
            "until": min(ends, default=None),
            "roots": wanted.roots or reads.roots,
        }
    )


class ViewerViews(SessionViews):
    """What a viewer may see; lists ask the stores for what their filter says, instead of for all.

    Args:
        stores: As of `SessionViews`.
        reads: Of the viewer.
        agents: As of `SessionViews`.
    """

    def __init__(
        self,
        stores: ReadableStores,
        reads: SessionFilter | Admits,
        *,
        agents: Mapping[str, Agent] | None = None,
    ) -> None:
        super().__init__(stores, admits=admits_by(reads), agents=agents)
        self._reads = reads if isinstance(reads, SessionFilter) else SessionFilter()

    async def list_sessions(
        self, wanted: SessionFilter = EVERY_SESSION, *, limit: int = 50, cursor: str | None = None
    ) -> SessionList:
        """As of `SessionViews`."""
        narrowed = narrow_filter(wanted, self._reads)
        return (
            SessionList()
            if narrowed is None
            else await super().list_sessions(narrowed, limit=limit, cursor=cursor)
        )

    async def iterate_sessions(self, wanted: SessionFilter = EVERY_SESSION) -> AsyncIterator[SessionOverview]:
        """As of `SessionViews`."""
        narrowed = narrow_filter(wanted, self._reads)
        if narrowed is not None:
            async for each in super().iterate_sessions(narrowed):
                yield each

    async def find_calls(
        self, wanted: SessionFilter = EVERY_SESSION, **calls: Any
    ) -> AsyncGenerator[FoundCall]:
        """As of `SessionViews`."""
        narrowed = narrow_filter(wanted, self._reads)
        if narrowed is not None:
            async with aclosing(
                cast("AsyncGenerator[FoundCall]", super().find_calls(narrowed, **calls))
            ) as found:
                async for each in found:
                    yield each


def _fits(session: SessionOverview, wanted: SessionFilter) -> bool:
    given: tuple[tuple[object, object], ...] = (
        (wanted.user_id, session.user_id),
        (wanted.agent, session.agent),
        (wanted.parent_session_id, session.parent_session_id),
    )
    return (
        all(want is None or want == has for want, has in given)
        and (not wanted.status or session.status in wanted.status)
        and set(wanted.tags) <= set(session.tags)
        and _has_metadata(session.metadata, wanted.metadata)
        and (wanted.since is None or session.updated_at >= wanted.since)
        and (wanted.until is None or session.updated_at < wanted.until)
        and not (wanted.roots and session.parent_session_id is not None)
    )


def _has_metadata(has: Mapping[str, object], wanted: Mapping[str, str]) -> bool:
    # As the stores compare: the number 3 is not the text "3".
    return all(name in has and has[name] == value for name, value in wanted.items())


async def find_viewer(authorise: Authorise, request: Request) -> Viewer:
    """Who asks.

    Raises:
        HTTPException: 403: nobody who may look.
    """
    answer = authorise(request)
    viewer = await answer if inspect.isawaitable(answer) else answer
    if not isinstance(viewer, Viewer):
        raise HTTPException(403)
    return viewer


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
        if request.client is None or not is_loopback(request.client.host):
            return None
        return self._viewer if self._has_token(request.cookies.get(cookie_name(request))) else None

    def exchange_token(self, request: Request) -> Response | None:
        """A link with the token leads to the same page without it, and leaves a cookie; None: it has none.

        Raises:
            HTTPException: 403: the token is another one.
        """
        if "token" not in request.query_params:
            return None
        if request.client is None or not is_loopback(request.client.host):
            raise HTTPException(403)
        if not self._has_token(request.query_params["token"]):
            raise HTTPException(403)
        rest = urlencode([pair for pair in request.query_params.multi_items() if pair[0] != "token"])
        path = request.scope["path"].replace("\\", "/")
        # Two slashes at the begin would name another host.
        there = "/" + path.lstrip("/") + (f"?{rest}" if rest else "")
        response = RedirectResponse(there, 303)
        response.set_cookie(
            cookie_name(request),
            self.token,
            path=cookie_path(request),
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return response

    def _has_token(self, given: str | None) -> bool:
        return given is not None and hmac.compare_digest(given.encode(), self.token.encode())


def cookie_name(request: Request, what: str = "token") -> str:
    """A cookie of this port's: browsers send cookies to all ports of a host."""
    server = request.scope.get("server")
    port = server[1] if server else None
    return f"helix_inspector_{what}_{port}" if port else f"helix_inspector_{what}"


def cookie_path(request: Request) -> str:
    """The path of the application, so that others on the host don't get its cookies."""
    return request.scope.get("root_path") or "/"
