"""A conversation of agent-framework that goes on in another process, with a model that needs no key.

    python examples/agent_framework_sessions/agent_framework_sessions.py

Each question is asked by a process of its own; what it knows of the one before is in the store.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
    tool,
)

from helix_temporal import Backends, Settings
from helix_temporal.frameworks.agent_framework import HelixHistoryProvider

QUESTIONS = ("Where is NL-20417?", "And when does it arrive?")


@tool
def find_order(number: str) -> str:
    """Say where an order is."""
    return f"{number} is in Utrecht"


class ScriptedClient(FunctionInvocationLayer, BaseChatClient):
    """Looks the order up once, then answers with what it has been given."""

    async def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **_: Any
    ) -> ChatResponse:
        del stream, options
        results = [
            part.result for each in messages for part in each.contents if part.type == "function_result"
        ]
        if not results:
            call = Content.from_function_call("call-1", "find_order", arguments={"number": "NL-20417"})
            return ChatResponse(messages=[Message("assistant", [call])])
        text = f"{results[-1]}; I was given {len(messages)} messages."
        return ChatResponse(messages=[Message("assistant", [text])])


async def ask(question: str) -> None:
    """One process: open the store, run the agent, print its answer."""
    backends = Backends(Settings.from_env(os.environ))
    try:
        history = HelixHistoryProvider(backends.sessions)
        agent = Agent(ScriptedClient(), tools=[find_order], context_providers=[history])
        answer = await agent.run(question, session=AgentSession(session_id="user-42"))
        sys.stdout.write(f"{question}\n  {answer.text}\n")
    finally:
        await backends.close()


def main() -> None:
    """Ask each question in a process of its own, over one directory."""
    with tempfile.TemporaryDirectory() as directory:
        for question in QUESTIONS:
            environment = {"HELIX_DATA_DIRECTORY": directory, **os.environ}
            subprocess.run([sys.executable, __file__, question], env=environment, check=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(ask(sys.argv[1]))
    else:
        main()
