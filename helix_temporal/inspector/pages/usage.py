"""What a session used."""

from starlette.requests import Request
from starlette.responses import Response

from helix_temporal.inspector.page_request import PageRequest
from helix_temporal.inspector.pages.frame import get_session, show_session, try_read


async def show_usage(request: Request, page: PageRequest) -> Response:
    """What the session used, or it and its sub-agents, by model and by tool."""
    session = await get_session(request, page)
    descendants = request.query_params.get("descendants") == "1"
    reading = page.views.get_usage(session.overview.session_id, descendants=descendants)
    usage, problem = await try_read(reading)
    models = sorted(usage.by_model.items(), key=lambda pair: -pair[1].total) if usage else []
    tools = sorted(usage.by_tool.items(), key=lambda pair: -pair[1].calls) if usage else []
    return show_session(
        page,
        "usage.html",
        session,
        usage=usage,
        models=models[:60],
        tools=tools[:120],
        descendants=descendants,
        problem=problem,
    )
