"""A workflow whose tasks can be held up, so that what happens meanwhile comes to it in one task."""

import threading
from typing import Final

from temporalio import workflow

from helix_temporal.models.sessions import SessionInput, SessionResult
from helix_temporal.workflows import AgentSession

STALLED: Final = threading.Event()
GOES_ON: Final = threading.Event()


@workflow.defn(name="tests.stalled", sandboxed=False)
class StalledSession:
    """A session."""

    @workflow.init
    def __init__(self, given: SessionInput) -> None:
        self._session = AgentSession(given)

    @workflow.run
    async def run(self, given: SessionInput) -> SessionResult:
        return await self._session.run()

    @workflow.signal
    def stall(self) -> None:
        """Hold the task, for less than the time in which a worker suspects a deadlock."""
        STALLED.set()
        GOES_ON.wait(1.8)
