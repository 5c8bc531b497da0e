"""A session as a workflow.  Each turn is one activity: open the session, run the agent, return its answer."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from temporalio import activity, workflow

with workflow.unsafe.imports_passed_through():
    from strands import Agent
    from strands.session import SnapshotSessionManager
    from strands.types.content import Message
    from strands_agents_sessions import ScriptedModel, find_order

    from helix_temporal import Backends
    from helix_temporal.frameworks.strands import HelixStorage


@dataclass
class Turn:
    """A question to the agent.  All attempts at a turn have its id."""

    session_id: str
    id: str
    question: str


class TurnActivities:
    """The activity of a turn, with the stores of its worker."""

    def __init__(self, backends: Backends) -> None:
        self._backends = backends

    @activity.defn
    def answer_turn(self, turn: Turn) -> str:
        """Run the agent, unless an earlier attempt has stored the turn: then return that answer."""
        attempt = activity.info().attempt
        agent = open_agent(turn.session_id, self._backends)
        if agent.state.get("turn") != turn.id:
            # The snapshot that has the answer has this as well.
            agent.state.set("turn", turn.id)
            agent(turn.question)
        elif is_answer(agent.messages[-1]):
            print(f"  attempt {attempt}: the session has the answer", flush=True)
            return get_text(agent.messages[-1])
        else:
            agent()  # an earlier attempt failed behind the question: go on from there
        print(f"  attempt {attempt}: the agent answered", flush=True)
        return get_text(agent.messages[-1])


def open_agent(session_id: str, backends: Backends) -> Agent:
    """The agent of the last snapshot.  An attempt that still runs elsewhere is refused when it stores."""
    storage = HelixStorage(session_id, backends.records, exclusive=True)
    manager = SnapshotSessionManager(session_id, storage=storage)
    return Agent(model=ScriptedModel(), tools=[find_order], session_manager=manager, callback_handler=None)


def is_answer(message: Message) -> bool:
    """Whether a turn ends with this message."""
    return message["role"] == "assistant" and not any("toolUse" in part for part in message["content"])


def get_text(message: Message) -> str:
    """The text of a message."""
    return "".join(part["text"] for part in message["content"] if "text" in part)


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
