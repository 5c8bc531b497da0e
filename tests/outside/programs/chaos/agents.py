"""The user's agents: a message's words say which tools the model asks for.

The final answer is ``re <ids of the messages> #<token>``: the token names this one model call.
"""

import asyncio
import os
import random
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from chaos.ledger import Ledger
from helix_temporal.agents import (
    Agent,
    ModelRequest,
    ModelResponse,
    ToolContext,
    ToolOutcome,
    agent_tool,
    client_tool,
    tool,
)
from helix_temporal.models.messages import Message, ToolCall, Usage

LEDGER_VARIABLE: Final = "OUTSIDE_LEDGER"
TOOLS: Final = ("charge", "pay", "slow", "note", "where", "helper")
LONG: Final = "x" * 10_000
"""More than travels in a workflow."""


def unanswered(messages: Sequence[Message]) -> list[Message]:
    """Everything since the last final answer."""
    found: list[Message] = []
    for message in reversed(messages):
        if message.role == "assistant" and not message.tool_calls:
            break
        found.insert(0, message)
    return found


class WrittenDownModel:
    """Asks for the tools that the messages name, then answers; each call is in the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """One model call."""
        open_messages = unanswered(request.messages)
        users = [message for message in open_messages if message.role == "user"]
        ids, token = [message.id for message in users], secrets.token_hex(8)
        self._ledger.write("call", session=request.session_id, ids=ids, token=token, step=request.step_key)
        await asyncio.sleep(random.uniform(0, 0.4))
        asked_before = any(message.role == "assistant" for message in open_messages)
        calls = () if asked_before else tuple(call for user in users for call in _calls(user))
        self._ledger.write("paid", session=request.session_id, ids=ids, token=token)
        padding = LONG if any("long" in user.text for user in users) and not calls else ""
        text = "one moment" if calls else f"re {' '.join(ids)} #{token}{padding}"
        return ModelResponse(text, tool_calls=calls, usage=Usage(input_tokens=1, output_tokens=1))


def _calls(user: Message) -> list[ToolCall]:
    words = user.text.split()
    return [
        ToolCall(id=f"{name}-{at}", name=name, arguments=_arguments(name, f"{user.id}/{name}/{at}"))
        for at, name in enumerate(words)
        if name in TOOLS
    ]


def _arguments(name: str, what: str) -> dict[str, JsonValue]:
    return {"task": "charge"} if name == "helper" else {"what": what}


def agents(ledger: Ledger) -> list[Agent]:
    """The agent that people talk to, and the one that works for it."""

    def effect(what: str, context: ToolContext) -> None:
        ledger.write("effect", session=context.session_id, key=context.key, what=what)

    @tool(attempts=50)
    async def charge(what: str, context: ToolContext) -> str:
        """Charge something: an effect outside."""
        effect(what, context)
        await asyncio.sleep(random.uniform(0, 0.2))
        return f"charged {what}"

    @tool(attempts=50)
    async def slow(what: str, context: ToolContext) -> str:
        """Charge something, and take long."""
        effect(what, context)
        await asyncio.sleep(3)
        return f"slowly {what} {LONG}"

    @tool(attempts=50, approval=True)
    async def pay(what: str, context: ToolContext) -> str:
        """Pay something that somebody must approve."""
        effect(what, context)
        return f"paid {what}"

    @tool(attempts=50)
    async def note(what: str) -> ToolOutcome:
        """Write into the session's state."""
        return ToolOutcome(content=f"noted {what}", state={"note": what})

    where = client_tool(
        "where",
        parameters={
            "type": "object",
            "properties": {"what": {"type": "string"}},
            "required": ["what"],
        },
    )
    desk = Agent(
        name="desk",
        model=WrittenDownModel(ledger),
        tools=[charge, slow, pay, note, where, agent_tool("helper", agent="clerk")],
    )
    return [desk, Agent(name="clerk", model=WrittenDownModel(ledger), tools=[charge])]


def agents_from_environment() -> list[Agent]:
    """As a worker finds them."""
    return agents(Ledger(Path(os.environ[LEDGER_VARIABLE])))
