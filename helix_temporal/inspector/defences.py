"""What keeps other web pages out, around every request: headers, names of hosts, origins."""

import hmac
import logging
import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from helix_temporal.errors import InvalidConfigError
from helix_temporal.inspector.access import LOOPBACK_NAMES, find_port, read_cookie

logger = logging.getLogger(__name__)

POLICY: Final[Mapping[str, str]] = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "connect-src": "'self'",
    "img-src": "'self' data:",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
    "base-uri": "'none'",
}
HEADERS: Final[Mapping[str, str]] = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
REPORTS: Final = "/policy-reports"
FOREIGN_NAME: Final = (
    "This name of the host is not one of the inspector's. Open it by the address that it printed, or let it "
    "answer to this name: helix-temporal inspect --allow-host NAME:PORT, or create_inspector(hosts=…)."
)
FOREIGN_PAGE: Final = (
    "Nothing was changed. Requests that change something must come from the inspector's own pages, by the "
    "same name, and over TLS or on this machine. Behind a proxy: it must pass on the header Host as the "
    "browser sent it, and browsers must reach it over https."
)
_HOST: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::[0-9]{1,5})?")
_READS: Final = frozenset({"GET", "HEAD"})


def security_headers(report_to: str | None = None) -> dict[str, str]:
    """The headers of every response; ``report_to`` is a path that browsers tell what they have stopped."""
    policy = {**POLICY, "report-uri": report_to} if report_to else POLICY
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        **HEADERS,
    }


class Defences:
    """Around the application: refuses requests under foreign names or from foreign pages, and sets headers.

    Args:
        app: What answers.
        hosts: Names, with a port unless it is the scheme's own, under which it may be asked for; None: any,
            because the application around it sees to that.
        local: This machine's names at the server's port count as well.
        reports: For tests: what browsers tell that the policy has stopped is added to it.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Iterable[str] | None = (),
        local: bool = True,
        reports: list[bytes] | None = None,
    ) -> None:
        self._app = app
        self._hosts = None if hosts is None else frozenset(each.lower() for each in hosts)
        self._local, self._reports = local, reports

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._reports is not None and scope["path"].endswith(REPORTS):
            self._reports.append(await Request(scope, receive).body())
            await Response(status_code=204)(scope, receive, send)
            return
        sender = _HeaderSender(send, self._headers(scope))
        refusal = self._refuse(scope)
        if refusal is not None:
            await refusal(scope, receive, sender)
            return
        try:
            await self._app(scope, receive, sender)
        except Exception:
            logger.exception("The inspector failed to answer %s", scope["method"])
            if sender.started:
                raise
            await PlainTextResponse("This page failed; the server's log says why.", 500)(
                scope, receive, sender
            )

    def _headers(self, scope: Scope) -> dict[str, str]:
        return security_headers(None if self._reports is None else scope.get("root_path", "") + REPORTS)

    def _is_own_name(self, host: str, scope: Scope) -> bool:
        """Whether the ``Host`` header names this server; a foreign name that leads here is an attack."""
        if self._hosts is None:
            return True
        return host in self._hosts or (self._local and host in local_names(scope))

    def _refuse(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        if not self._is_own_name(headers.get("host", "").lower(), scope):
            return PlainTextResponse(FOREIGN_NAME, 421)
        if scope["method"] not in _READS and not is_own_origin(headers, scope["scheme"]):
            return PlainTextResponse(FOREIGN_PAGE, 403)
        return None


def check_hosts(hosts: Iterable[str]) -> None:
    """Refuse names that no browser sends in ``Host``: they would let nobody in, without a reason.

    Raises:
        InvalidConfigError: One is no name of a host.
    """
    for each in hosts:
        if not _HOST.fullmatch(each):
            raise InvalidConfigError(
                f"{each[:80]!r} is no name of a host; expected one as it stands in a browser's address, with "
                "its port: inspector.example or localhost:9000"
            )


def check_link(address: str) -> None:
    """Refuse an address of another page that is none: a link to it may run a script.

    Raises:
        InvalidConfigError: It is no address of a web page.
    """
    try:
        found = urlsplit(address)
    except ValueError:
        found = urlsplit("")
    if found.scheme not in {"http", "https"} or not _HOST.fullmatch(found.netloc):
        raise InvalidConfigError(
            f"{address[:80]!r} is no address of Temporal's page; expected one such as http://localhost:8233"
        )


def local_names(scope: Scope) -> set[str]:
    """This machine's names at the server's port."""
    port = find_port(scope)
    own = {f"{name}:{port}" for name in LOOPBACK_NAMES}
    return own | set(LOOPBACK_NAMES) if port in {80, 443} else own


def is_own_origin(headers: Headers, scheme: str) -> bool:
    """Whether a request that changes something comes from a page of the same origin.

    Browsers say so in ``Sec-Fetch-Site``, over TLS and on this machine; elsewhere ``Origin`` must do, which
    our ``Referrer-Policy`` makes ``null`` in forms.  What sends neither is no browser of a viewer's.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site != "same-origin":
        return False
    if origin is None or origin == "null":
        return site is not None
    found = urlsplit(origin)
    # Behind a proxy that ends TLS the scheme seen here is http.
    return found.scheme in {scheme, "https"} and found.netloc.lower() == headers.get("host", "").lower()


def check_form(request: Request, given: object) -> None:
    """Refuse a form that was not made for this browser.

    Raises:
        FormRefusedError: 403.
    """
    kept = read_cookie(request, "form")
    if not kept or not isinstance(given, str) or not hmac.compare_digest(kept.encode(), given.encode()):
        raise FormRefusedError(403)


class FormRefusedError(HTTPException):
    """A form was sent whose hidden value is not that of the browser which sent it."""


class _HeaderSender:
    """Sends a response on with the headers that all have."""

    def __init__(self, send: Send, headers: Mapping[str, str]) -> None:
        self._send, self._headers = send, headers
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            own = MutableHeaders(scope=message)
            own.update(self._headers)
            own.setdefault("Cache-Control", "no-store")
        await self._send(message)
