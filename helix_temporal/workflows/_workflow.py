"""The session workflow, ready to use."""

from temporalio import workflow

from helix_temporal.models.sessions import SessionInput, SessionResult
from helix_temporal.workflows._session import AgentSession


@workflow.defn(name="helix.session")
class SessionWorkflow:
    """A session, ready to use: one live execution a session, started and messaged by `SessionClient`."""

    @workflow.init
    def __init__(self, input: SessionInput) -> None:
        self._session = AgentSession(input)

    @workflow.run
    async def run(self, input: SessionInput) -> SessionResult:  # noqa: ARG002 (init has it)
        """Serve the session until it is idle, closed, cancelled or failed."""
        return await self._session.run()
