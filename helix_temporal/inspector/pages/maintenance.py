"""The schedules of maintenance and how their last runs went."""

import asyncio
from collections.abc import Sequence
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from temporalio.service import RPCError

from helix_temporal.inspector.page_request import PageRequest
from helix_temporal.inspector.pages.frame import show_template
from helix_temporal.views.models import ScheduleFacts
from helix_temporal.views.schedules import read_schedules

SECONDS: Final = 5.0
NO_TEMPORAL: Final = (
    "This inspector has no connection to Temporal, which keeps the schedules. Start it with "
    "HELIX_TEMPORAL_ADDRESS, or give create_inspector(client=SessionClient(…))."
)


async def show_maintenance(request: Request, page: PageRequest) -> Response:  # noqa: ARG001
    """Schedules, as Temporal tells of them.

    Raises:
        HTTPException: 404: the viewer sees some sessions alone, and schedules are the whole deployment's.
    """
    if not page.viewer.sees_everything:
        raise HTTPException(404)
    if page.settings.temporal is None:
        return show_schedules(page, (), NO_TEMPORAL)
    try:
        async with asyncio.timeout(SECONDS):
            return show_schedules(page, await read_schedules(page.settings.temporal), None)
    # A client that connects when it is asked first raises RuntimeError where nobody answers.
    except (RPCError, RuntimeError, TimeoutError) as error:
        return show_schedules(page, (), f"Temporal does not answer just now: {type(error).__name__}.")


def show_schedules(page: PageRequest, schedules: Sequence[ScheduleFacts], problem: str | None) -> Response:
    """Schedules, or why there are none to be shown."""
    return show_template(page, "maintenance.html", area="maintenance", schedules=schedules, problem=problem)
