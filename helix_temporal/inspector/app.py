"""The inspector as an ASGI application: who asks, which page, and what every answer carries."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from temporalio.client import Client

from helix_temporal.agents import Agent
from helix_temporal.client import SessionClient
from helix_temporal.errors import HelixError, InvalidConfigError
from helix_temporal.inspector.access import Authorise, LocalAccess, Viewer, find_viewer
from helix_temporal.inspector.actions import SessionActions
from helix_temporal.inspector.defences import Defences, check_hosts, check_link
from helix_temporal.inspector.live import LiveStreams
from helix_temporal.inspector.page_request import (
    Endpoint,
    InspectorSettings,
    PageLinks,
    PageRequest,
    PageRoute,
    csrf_value,
    keep_csrf,
)
from helix_temporal.inspector.pages import ROUTES
from helix_temporal.inspector.pages.errors import show_error
from helix_temporal.inspector.rendering import compile_templates
from helix_temporal.inspector.static_files import StaticRoute
from helix_temporal.stores.protocols.readable import ReadableStores
from helix_temporal.views import SessionViews
from helix_temporal.web.event_stream import EVENTS
from helix_temporal.web.statuses import find_status

logger = logging.getLogger(__name__)


def create_inspector(
    stores: ReadableStores,
    *,
    authorise: Authorise | None = None,
    client: SessionClient | None = None,
    agents: Mapping[str, Agent] | None = None,
    hosts: Collection[str] = (),
    actions: bool = False,
    temporal: Client | None = None,
    temporal_ui: str | None = None,
    reports: list[bytes] | None = None,
) -> Starlette:
    """The inspector over these stores, to be served as it is or mounted in another application.

    Args:
        stores: A `helix_temporal.backends.Backends`, or `helix_temporal.client.SessionStores`.
        authorise: Asked for every request: who it is and what exists for them; None refuses.  Without one it
            is a `LocalAccess`, for this machine alone, whose token is ``app.state.access.token``.
        client: Talks to the sessions, for actions, and reads their streams, for what is live.
        agents: By name, for the instructions and tools that a model was given.
        hosts: Names under which it may be asked for, as in the ``Host`` header.  By default any, where
            ``authorise`` is given; without it this machine's names at the server's port count as well.
        actions: Viewers who may can approve, answer and stop; needs ``client``.
        temporal: Shows the maintenance schedules, which are those of the whole deployment; by default that of
            ``client``.
        temporal_ui: Address of Temporal's own page, for links.
        reports: For tests: what browsers tell that the content security policy has stopped is added to it.

    Raises:
        InvalidConfigError: Actions without a client that could carry them out; a name of ``hosts`` or an
            address that is none.
    """
    if actions and client is None:
        raise InvalidConfigError(
            "create_inspector(actions=True) got no client, which carries actions out; "
            "give client=SessionClient(…), or leave actions out"
        )
    check_hosts(hosts)
    if temporal_ui is not None:
        check_link(temporal_ui)
    if temporal is None and client is not None:
        temporal = client.temporal
    compile_templates()
    is_local = authorise is None
    settings = InspectorSettings(actions, temporal, temporal_ui and temporal_ui.rstrip("/"))
    inspector = _Inspector(
        stores, LocalAccess() if authorise is None else authorise, client, agents, settings
    )
    names = hosts if hosts or is_local else None
    return inspector.build_app(Middleware(Defences, hosts=names, local=is_local, reports=reports))


class _Inspector:
    def __init__(
        self,
        stores: ReadableStores,
        authorise: Authorise,
        client: SessionClient | None,
        agents: Mapping[str, Agent] | None,
        settings: InspectorSettings,
    ) -> None:
        self._stores, self._client, self._agents = stores, client, agents
        self._authorise, self._settings = authorise, settings
        self._live = LiveStreams()

    def build_app(self, defences: Middleware) -> Starlette:
        """The application behind these defences."""
        app = Starlette(
            routes=self._build_routes(),
            middleware=[defences],
            exception_handlers={
                HTTPException: self._show_refusal,
                HelixError: self._show_error,
                TimeoutError: self._show_error,
            },
        )
        app.router.redirect_slashes = False
        app.state.access, app.state.live = self._authorise, self._live
        return app

    def _build_routes(self) -> list[Route]:
        """Files, which anybody may have, the pages, what is live, and what forms are sent to."""
        one = "/sessions/{session_id:helix_id}"
        return [
            StaticRoute("/static"),
            *(self._build_page(each) for each in ROUTES),
            self._build_page(PageRoute(f"{one}/live", "live", self._live.follow_session)),
            *(self._build_action(f"{one}/{name}", name, act) for name, act in self._list_actions()),
        ]

    def _list_actions(self) -> list[tuple[str, Endpoint]]:
        if self._client is None:
            return []
        does = SessionActions(self._client)
        return [("approve", does.approve), ("answer", does.answer), ("stop", does.stop)]

    def _build_action(self, path: str, name: str, act: Endpoint) -> Route:
        return Route(path, self._guard(act), name=name, methods=["POST"])

    def _build_page(self, page: PageRoute) -> Route:
        return Route(page.path, self._guard(page.endpoint), name=page.name, methods=["GET"])

    def _guard(self, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        """The endpoint for those who may look."""

        async def answer(request: Request) -> Response:
            if isinstance(self._authorise, LocalAccess) and request.method == "GET":
                exchanged = self._authorise.exchange_token(request)
                if exchanged is not None:
                    return exchanged
            page = self._make_page(request, await find_viewer(self._authorise, request))
            request.state.page = page
            response = await endpoint(request, page)
            keep_csrf(request, response, page.csrf)
            return response

        return answer

    def _make_page(self, request: Request, viewer: Viewer) -> PageRequest:
        views = SessionViews(self._stores, admits=viewer.reads, agents=self._agents)
        links = PageLinks(request.app.router, request.scope.get("root_path", ""))
        return PageRequest(views, viewer, self._settings, csrf_value(request), links)

    async def _show_refusal(self, request: Request, error: Exception) -> Response:
        """A page that isn't there, or isn't for who asks."""
        assert isinstance(error, HTTPException)
        if error.status_code < 400 and EVENTS in request.headers.get("accept", ""):
            # A login's page read as a stream ends at once, and would be asked for again each second.
            error = HTTPException(403)
        response = await show_error(request, _page_of(request), error.status_code, error)
        # Where to log in, or when to come again.
        response.headers.update(error.headers or {})
        return response

    async def _show_error(self, request: Request, error: Exception) -> Response:
        """What kept a page from being shown."""
        status = find_status(error)
        if status == 500:
            logger.error("The inspector failed to show a page: %s", error, exc_info=error)
        return await show_error(request, _page_of(request), status, error)


def _page_of(request: Request) -> PageRequest | None:
    return getattr(request.state, "page", None)
