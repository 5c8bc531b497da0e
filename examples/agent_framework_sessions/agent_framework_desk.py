"""A session as a workflow.  Each turn is one activity: open the session, run the agent, return its answer."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import takewhile

from temporalio import activity, workflow

with workflow.unsafe.imports_passed_through():
    from agent_framework import Agent, AgentResponse, AgentSession, Message
    from agent_framework_sessions import ScriptedClient, find_order

    from helix_temporal import Backends
    from helix_temporal.frameworks.agent_framework import HelixHistoryProvider


@dataclass
class Turn:
    """A question to the agent.  All attempts at a turn have its id."""

    session_id: str
    id: str
    question: str


class TurnActivities:
    """The activity of a turn, with the stores of its worker."""

    def __init__(self, backends: Backends) -> None:
        self._history = HelixHistoryProvider(backends.sessions)

    @activity.defn
    async def answer_turn(self, turn: Turn) -> str:
        """Run the agent, unless an earlier attempt has stored the turn: then return that answer."""
        attempt = activity.info().attempt
        answer = find_answer(await self._history.get_messages(turn.session_id), turn.id)
        if answer is not None:
            print(f"  attempt {attempt}: the session has the answer", flush=True)
            return answer
        agent = Agent(ScriptedClient(), tools=[find_order], context_providers=[self._history])
        question = Message("user", [turn.question], message_id=turn.id)
        response = await agent.run(question, session=AgentSession(session_id=turn.session_id))
        print(f"  attempt {attempt}: the agent answered", flush=True)
        return str(response.text)


def find_answer(messages: Sequence[Message], turn_id: str) -> str | None:
    """The answer to a stored question: the two were stored in one append."""
    ids = [each.message_id for each in messages]
    if turn_id not in ids:
        return None
    behind = messages[ids.index(turn_id) + 1 :]
    return str(AgentResponse(messages=[*takewhile(lambda each: each.role != "user", behind)]).text)


@workflow.defn
class Desk:
    """A session: it answers one question after the other, until it is closed."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._closed = False

    @workflow.run
    async def run(self) -> None:
        """Serve until the session is closed."""
        await workflow.wait_condition(lambda: self._closed and workflow.all_handlers_finished())

    @workflow.update
    async def ask(self, question: str) -> str:
        """Run one turn, as one activity."""
        update = workflow.current_update_info()
        assert update is not None
        turn = Turn(workflow.info().workflow_id, update.id, question)
        async with self._turn:
            # Temporal notices a killed worker when this time is over.
            return await workflow.execute_activity_method(
                TurnActivities.answer_turn, turn, start_to_close_timeout=timedelta(seconds=10)
            )

    @workflow.signal
    def close(self) -> None:
        """End the session's workflow; what is stored stays."""
        self._closed = True
