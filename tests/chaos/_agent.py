"""The agent of all campaigns: its answers tell what they answer, and every call is on the books."""

import asyncio
import random
import re
import secrets
from collections.abc import Sequence
from typing import Final

from helix_temporal.agents import Agent, ModelRequest, ModelResponse, Tool, ToolContext, agent_tool, tool
from helix_temporal.models.agents import ChildThread
from helix_temporal.models.messages import Message, ToolCall
from tests.chaos._ledger import Ledger

AGENT: Final = "chaos"
_TOKEN: Final = re.compile(rb"#([0-9a-f]{16})")
_TOOLS: Final = re.compile(r"tools=(\d+)")
_AGENTS: Final = re.compile(r"agents=(\d+)")
HELPERS: Final[dict[str, ChildThread]] = {"helper": "new", "pal": "continue", "twin": "fork"}
"""Sub-agents, all of them this very agent, and what they know."""
_PADDING: Final = "x" * 3000
"""More than travels in a workflow: arguments are read from the thread, results are put aside."""


def token_of(body: bytes) -> str | None:
    """Which model call wrote this message."""
    found = _TOKEN.search(body)
    return found.group(1).decode() if found else None


def waiting(messages: Sequence[Message]) -> list[Message]:
    """What an answer is to answer: everything after the last message of the model."""
    found: list[Message] = []
    for message in reversed(messages):
        if message.role == "assistant":
            break
        found.insert(0, message)
    return found


class BookedModel:
    """Answers by naming the messages it answers and this very call; notes each call before it thinks.

    A user's text with ``tools=2`` makes it ask for two tools first, and ``large`` for large ones;
    ``agents=3`` makes it ask three sub-agents.
    """

    def __init__(self, ledger: Ledger, seconds: float = 0.03) -> None:
        self._ledger, self._seconds = ledger, seconds

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Answer, or ask for tools."""
        token, new = secrets.token_hex(8), waiting(request.messages)
        ids = [message.id for message in new]
        self._ledger.write(
            "model", session=request.session_id, inputs=ids, token=token, step=request.step_key
        )
        await asyncio.sleep(random.uniform(0, 2 * self._seconds))
        asked = new[-1].text if new[-1].role == "user" else ""
        wanted, padding = _TOOLS.search(asked), _PADDING if "large" in asked else ""
        calls = tuple(
            ToolCall(
                id=f"call_{number}",
                name="touch",
                arguments={"what": f"{ids[-1]}/{number}", "padding": padding},
            )
            for number in range(int(wanted.group(1)) if wanted else 0)
        )
        helpers = _AGENTS.search(asked)
        calls += tuple(
            ToolCall(id=f"help_{number}", name=tuple(HELPERS)[number % 3], arguments={"task": "tools=1"})
            for number in range(int(helpers.group(1)) if helpers else 0)
        )
        return ModelResponse(content=f"re {' '.join(ids)} #{token}", tool_calls=calls)


def touch_tool(ledger: Ledger, seconds: float = 0.02) -> Tool:
    """A tool with an effect: it notes the key under which the effect took place."""

    @tool(attempts=20)
    async def touch(what: str, padding: str, context: ToolContext) -> str:
        """Touch something."""
        ledger.write("tool", session=context.session_id, key=context.key, what=what)
        await asyncio.sleep(random.uniform(0, 2 * seconds))
        return f"touched {what}{padding}"

    return touch


def chaos_agent(ledger: Ledger, *, model_seconds: float = 0.03, tool_seconds: float = 0.02) -> Agent:
    """The agent over a ledger; ``…_seconds`` are means."""
    return Agent(
        name=AGENT,
        model=BookedModel(ledger, model_seconds),
        tools=[
            touch_tool(ledger, tool_seconds),
            *(agent_tool(name, agent=AGENT, thread=thread) for name, thread in HELPERS.items()),
        ],
    )
