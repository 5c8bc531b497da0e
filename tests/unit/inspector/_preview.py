"""``python -m tests.unit.inspector._preview [PORT]``: the pages with made-up sessions, to look at them."""

import asyncio
import contextlib
import sys
from typing import Any, cast

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from helix_temporal.errors import HelixError
from helix_temporal.inspector import pages
from helix_temporal.inspector.access import ACTIONS, Viewer
from helix_temporal.inspector.app import StaticRoute
from helix_temporal.inspector.defences import Defences
from helix_temporal.inspector.live import LiveStreams
from helix_temporal.inspector.page_request import Endpoint, InspectorSettings, PageLinks, PageRequest
from helix_temporal.inspector.pages.frame import show_template
from helix_temporal.inspector.server import bind, serving
from tests.unit.inspector._scene import SceneViews, list_schedules

SETTINGS = InspectorSettings(actions=True, temporal_ui="http://localhost:8233")


async def show_schedules(request: Request, page: PageRequest) -> Response:
    """Instead of Temporal's."""
    return show_template(page, "maintenance.html", area="maintenance", schedules=list_schedules(), problem=None)


async def refuse(request: Request, page: PageRequest) -> Response:
    """Nothing is done or followed here."""
    return Response(status_code=204)


def make_scene() -> Starlette:
    """The pages as an application, without access control."""

    def guard(endpoint: Endpoint) -> Any:
        async def answer(request: Request) -> Response:
            links = PageLinks(request.app.router, request.scope.get("root_path", ""))
            page = PageRequest(cast("Any", SceneViews()), Viewer(may=ACTIONS), SETTINGS, "csrf", links)
            try:
                return await endpoint(request, page)
            except HelixError as error:
                return await pages.show_error(request, page, 404, error)

        return answer

    one = "/sessions/{session_id:helix_id}"
    shown = {each.name: each for each in pages.ROUTES}
    shown["maintenance"] = shown["maintenance"]._replace(endpoint=show_schedules)
    app = Starlette(
        routes=[
            StaticRoute("/static"),
            *(Route(each.path, guard(each.endpoint), name=each.name) for each in shown.values()),
            Route(f"{one}/live", guard(refuse), name="live"),
            *(Route(f"{one}/{name}", guard(refuse), name=name, methods=["POST"]) for name in ("approve", "answer", "stop")),
        ],
        middleware=[Middleware(Defences, hosts=None)],
    )
    app.state.access, app.state.live = None, LiveStreams()
    return app


async def main() -> None:
    """Serve until Ctrl-C."""
    app = make_scene()
    async with serving(app, bind("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8399)):
        await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
