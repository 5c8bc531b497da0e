"""The schedules of maintenance and how their last runs went."""

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from temporalio.service import RPCError

from helix_temporal.inspector.page_request import PageRequest
from helix_temporal.inspector.pages.frame import show_template
from helix_temporal.views.models import ScheduleFacts

SECONDS: Final = 5.0


async def show_maintenance(request: Request, page: PageRequest) -> Response:  # noqa: ARG001
    """Schedules, as Temporal tells of them."""
    schedules: tuple[ScheduleFacts, ...] = ()
    problem = None
    if page.settings.temporal is None:
        problem = (
            "This inspector has no connection to Temporal, which keeps the schedules. Start it with "
            "HELIX_TEMPORAL_ADDRESS, or give create_inspector(temporal=client)."
        )
    else:
        from helix_temporal.views.schedules import read_schedules  # noqa: PLC0415

        try:
            async with asyncio.timeout(SECONDS):
                schedules = tuple(await read_schedules(page.settings.temporal))
        except (RPCError, TimeoutError) as error:
            problem = f"Temporal does not answer just now: {type(error).__name__}."
    return show_template(page, "maintenance.html", area="maintenance", schedules=schedules, problem=problem)
