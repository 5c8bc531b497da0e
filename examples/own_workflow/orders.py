"""A workflow of one's own with a whole session inside: `AgentSession` serves, the workflow does the rest."""

from datetime import timedelta

from temporalio import activity, workflow

from helix_temporal import Agent, ScriptedModel, SessionInput, SessionResult, tool
from helix_temporal.agents import TurnCompleted
from helix_temporal.workflows import AgentSession, SessionHooks


@tool
def track(order: str) -> str:
    """Say where an order is.

    Args:
        order: Its number.
    """
    return f"{order} is in Leipzig."


clerk = Agent(
    name="clerk",
    model=ScriptedModel(lambda request: f"{len(request.messages)}: {request.messages[-1].text}"),
    tools=[track],
    instructions="You help with one order.",
)


@activity.defn(name="orders.file_report")
async def file_report(order: str, turns: int) -> str:
    """Put a report where your company wants it; here it is only a sentence."""
    return f"{order}: {turns} turns"


@workflow.defn
class OrderWorkflow:
    """A customer talks to the clerk about an order; at the end a report is filed.

    It takes a `SessionInput`, with which a long session continues as new.
    """

    @workflow.init
    def __init__(self, given: SessionInput) -> None:
        # Here rather than in `run`: an update that comes with the start finds its handler.
        self._session = AgentSession(given, SessionHooks(turn_completed=self._count))

    @workflow.run
    async def run(self, given: SessionInput) -> str:
        """Serve until the customer is idle or closes the session, then report."""
        result: SessionResult = await self._session.run()
        report: str = await workflow.execute_activity(
            file_report,
            args=[given.session_id, result.turns],
            start_to_close_timeout=timedelta(minutes=1),
        )
        return report

    @workflow.query
    def turns(self) -> int:
        """How many turns the session has had, in all of its executions."""
        count: int = self._session.values.get("turns", 0)
        return count

    def _count(self, event: TurnCompleted) -> None:  # noqa: ARG002 — every hook gets one
        # The session's values are saved with it.
        self._session.values["turns"] = self.turns() + 1
