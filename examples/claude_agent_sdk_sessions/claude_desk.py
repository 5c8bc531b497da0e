"""A session as a workflow.  Each turn is one activity: open the session, run the agent, return its answer."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

from temporalio import activity, workflow

with workflow.unsafe.imports_passed_through():
    from claude_agent_sdk import (
        ClaudeAgentOptions,
        MirrorErrorMessage,
        ResultMessage,
        project_key_for_directory,
        query,
    )
    from claude_agent_sdk_sessions import PROGRAM

    from helix_temporal import Backends
    from helix_temporal.frameworks.claude_agent_sdk import HelixSessionStore


@dataclass
class Turn:
    """A question to the agent.  All attempts at a turn have its id.  Both ids are UUIDs, as the SDK needs."""

    session_id: str
    id: str
    question: str


class TurnActivities:
    """The activity of a turn, with the stores of its worker."""

    def __init__(self, backends: Backends) -> None:
        self._store = HelixSessionStore(backends.sessions)

    @activity.defn
    async def answer_turn(self, turn: Turn) -> str:
        """Run the agent, unless an earlier attempt has stored the turn: then return that answer."""
        attempt = activity.info().attempt
        entries = await load_entries(self._store, turn.session_id)
        answer = find_answer(entries, turn.id)
        if answer is not None:
            print(f"  attempt {attempt}: the session has the answer", flush=True)
            return answer
        which = {"resume" if entries else "session_id": turn.session_id}
        options = ClaudeAgentOptions(session_store=self._store, cli_path=PROGRAM, **which)
        messages = [each async for each in query(prompt=send_question(turn, entries), options=options)]
        if any(isinstance(each, MirrorErrorMessage) for each in messages):
            raise RuntimeError("the turn is not stored as a whole")
        print(f"  attempt {attempt}: the agent answered", flush=True)
        return next(str(each.result) for each in messages if isinstance(each, ResultMessage))


async def load_entries(store: HelixSessionStore, session_id: str) -> list[Any]:
    """The questions and answers in a transcript, without the errors that stand in an answer's place."""
    key: Any = {"project_key": project_key_for_directory(), "session_id": session_id}
    entries: list[Any] = await store.load(key) or []
    said = [each for each in entries if each["type"] in {"user", "assistant"}]
    return [each for each in said if not each.get("isApiErrorMessage")]


def find_answer(entries: list[Any], turn_id: str) -> str | None:
    """The answer to the newest question; None if that is another one, or has none."""
    if not any(each["uuid"] == turn_id for each in entries) or entries[-1]["type"] != "assistant":
        return None
    return get_text(entries[-1]) or None


async def send_question(turn: Turn, entries: list[Any]) -> AsyncIterator[dict[str, Any]]:
    """The question, with the turn's id as that of its entry."""
    taken = any(each["uuid"] == turn.id for each in entries)
    message = {"role": "user", "content": turn.question}
    # The SDK's program does not answer an id that the transcript has.
    yield {"type": "user", "uuid": str(uuid4()) if taken else turn.id, "message": message}


def get_text(entry: Any) -> str:
    """The text of an entry."""
    content = entry["message"]["content"]
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part["type"] == "text")


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
