"""Session workflows of a next release: each turn records a step more, so no release replays the other's."""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import VersioningBehavior

from helix_temporal.models.ids import SESSION_WORKFLOW
from helix_temporal.models.sessions import SessionInput, SessionResult
from helix_temporal.models.stored_messages import Head
from helix_temporal.session.inbox import Entry
from helix_temporal.workflows import AgentSession
from helix_temporal.workflows.session import Serving, SessionWorkflow
from helix_temporal.workflows.turn import Turn, TurnResult

_STEP = timedelta(milliseconds=1)


class _ChangedServing(Serving):
    async def _follow_turn(
        self, turn: Turn, task: "asyncio.Task[TurnResult | None]", start: Head, entries: list[Entry]
    ) -> None:
        await workflow.sleep(_STEP)
        await super()._follow_turn(turn, task, start, entries)


class _ChangedAgentSession(AgentSession):
    def __init__(self, given: SessionInput) -> None:
        super().__init__(given)
        self._serving = _ChangedServing(self._execution, self._calls, self._events, self._values)


@workflow.defn(name=SESSION_WORKFLOW, versioning_behavior=VersioningBehavior.PINNED)
class ChangedSession(SessionWorkflow):
    """As the pack marks it where the server tells of new versions."""

    @workflow.init
    def __init__(self, given: SessionInput) -> None:
        self._session = _ChangedAgentSession(given)

    @workflow.run
    async def run(self, input: SessionInput) -> SessionResult:  # noqa: A002 (the name above)
        return await super().run(input)


@workflow.defn(name=SESSION_WORKFLOW, versioning_behavior=VersioningBehavior.AUTO_UPGRADE)
class UnpinnedChangedSession(ChangedSession):
    """The same, which takes over runs in the middle of a turn."""

    @workflow.run
    async def run(self, input: SessionInput) -> SessionResult:  # noqa: A002 (the SDK wants one on each class)
        return await super().run(input)


@workflow.defn(name="tests.held", versioning_behavior=VersioningBehavior.PINNED)
class HeldSession:
    """An application's own workflow with a session inside, and an update that takes its time."""

    @workflow.init
    def __init__(self, given: SessionInput) -> None:
        self._held = self._released = False
        self._session = AgentSession(given)

    @workflow.run
    async def run(self, given: SessionInput) -> SessionResult:
        return await self._session.run()

    @workflow.update
    async def hold(self) -> None:
        """Come back once it is released."""
        self._held = True
        await workflow.wait_condition(lambda: self._released)

    @workflow.query
    def held(self) -> bool:
        """Whether somebody holds."""
        return self._held

    @workflow.signal
    def release(self) -> None:
        """Let those who hold come back."""
        self._released = True


@workflow.defn(name="tests.errand")
class Errand:
    """An application's own workflow without a session, which says nothing of versions."""

    def __init__(self) -> None:
        self._told = False

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: self._told)
        return "done"

    @workflow.signal
    def tell(self) -> None:
        """It may end."""
        self._told = True
