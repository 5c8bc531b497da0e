"""The agent of all campaigns: its answers tell what they answer, and every call is on the books."""

import asyncio
import random
import re
import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Final

from pydantic import JsonValue

from helix_temporal.agents import (
    Agent,
    Hooks,
    ModelEvent,
    ModelRequest,
    ModelResponse,
    TextDelta,
    Tool,
    ToolContext,
    ToolOutcome,
    agent_tool,
    client_tool,
    tool,
)
from helix_temporal.models.agents import ChildThread
from helix_temporal.models.messages import Message, ToolCall, Usage
from tests.chaos._ledger import Ledger

AGENT: Final = "chaos"
_TOKEN: Final = re.compile(rb"#([0-9a-f]{16})")
_WANTED: Final = re.compile(r"(tools|notes|agents|people|waits|pays)=(\d+)")
HELPERS: Final[dict[str, ChildThread]] = {"helper": "new", "pal": "continue", "twin": "fork"}
"""Sub-agents, all of them this very agent, and what they know."""
TASKS: Final = {"deep": "agents=1", "asking": "waits=1 pays=1"}
"""Words by which a user has the sub-agents ask sub-agents of their own, or people."""
_NAMED: Final = {"notes": "note", "people": "person", "waits": "tell", "pays": "pay"}
_PADDING: Final = "x" * 3000
"""More than travels in a workflow: arguments are read from the thread, results are put aside."""
WHAT: Final[dict[str, JsonValue]] = {
    "type": "object",
    "properties": {"what": {"type": "string"}},
    "required": ["what"],
}


def token_of(body: bytes) -> str | None:
    """Which model call wrote this message."""
    found = _TOKEN.search(body)
    return found.group(1).decode() if found else None


def amount_of(token: str) -> int:
    """What this model call costs: no other costs as much, so entries and sums tell which were counted."""
    return int(token[:10], 16)


def _used(token: str) -> Usage:
    """By an answer: the tokens of all answers tell how many there were."""
    return Usage(input_tokens=amount_of(token), output_tokens=1)


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
    ``agents=3`` makes it ask three sub-agents, ``people=1`` the one who asked, ``waits=1`` somebody
    else, ``pays=1`` for a tool that somebody must approve.
    """

    def __init__(self, ledger: Ledger, seconds: float = 0.03) -> None:
        self._ledger, self._seconds = ledger, seconds

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Answer, or ask for tools."""
        token, response = self._respond(request)
        await asyncio.sleep(random.uniform(0, 2 * self._seconds))
        self._given(request, token)
        return response

    def _given(self, request: ModelRequest, token: str) -> None:
        """Noted before it is given: then it is paid for."""
        self._ledger.write("paid", session=request.session_id, token=token)

    def _respond(self, request: ModelRequest) -> tuple[str, ModelResponse]:
        token, new = secrets.token_hex(8), waiting(request.messages)
        ids = [message.id for message in new]
        self._ledger.write(
            "model", session=request.session_id, inputs=ids, token=token, step=request.step_key
        )
        asked = new[-1].text if new[-1].role == "user" else ""
        calls = _calls(asked, ids[-1])
        content = f"re {' '.join(ids)} #{token}"
        return token, ModelResponse(content=content, tool_calls=calls, usage=_used(token))


class AloudModel(BookedModel):
    """The same, word by word; one stream in ten breaks off."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Say it, then give it whole."""
        token, response = self._respond(request)
        words = [f"{word} " for word in f"{response.content} {'and so on ' * 4}".split()]
        breaks = random.randrange(len(words)) if random.random() < 0.1 else None
        for at, word in enumerate(words):
            if at == breaks:
                raise ConnectionResetError("the stream broke off, as it does in one of ten answers")
            yield TextDelta(word)
            await asyncio.sleep(random.uniform(0, 4 * self._seconds / len(words)))
        self._given(request, token)
        yield ModelResponse("".join(words), tool_calls=response.tool_calls, usage=_used(token))


def _calls(asked: str, last: str) -> tuple[ToolCall, ...]:
    """The tools that a user's text wants."""
    wanted = {what: int(count) for what, count in _WANTED.findall(asked)}
    padding = _PADDING if "large" in asked else ""
    task = next((task for word, task in TASKS.items() if word in asked), "tools=1")
    calls = [
        ToolCall(
            id=f"call_{number}", name="touch", arguments={"what": f"{last}/{number}", "padding": padding}
        )
        for number in range(wanted.get("tools", 0))
    ]
    calls += [
        ToolCall(id=f"help_{number}", name=tuple(HELPERS)[number % 3], arguments={"task": task})
        for number in range(wanted.get("agents", 0))
    ]
    calls += [
        ToolCall(id=f"{name}_{number}", name=name, arguments={"what": f"{last}/{name}/{number}"})
        for what, name in _NAMED.items()
        for number in range(wanted.get(what, 0))
    ]
    return tuple(calls)


def touch_tool(ledger: Ledger, seconds: float = 0.02) -> Tool:
    """A tool with an effect: it notes the key under which the effect took place."""

    @tool(attempts=20)
    async def touch(what: str, padding: str, context: ToolContext) -> str:
        """Touch something."""
        ledger.write("tool", session=context.session_id, key=context.key, what=what)
        await asyncio.sleep(random.uniform(0, 2 * seconds))
        return f"touched {what}{padding}"

    return touch


def pay_tool(ledger: Ledger, seconds: float = 0.02) -> Tool:
    """The same, for which somebody's leave is wanted."""

    @tool(attempts=20, approval=True)
    async def pay(what: str, context: ToolContext) -> str:
        """Pay something."""
        ledger.write("tool", session=context.session_id, key=context.key, what=what)
        await asyncio.sleep(random.uniform(0, 2 * seconds))
        return f"paid {what}"

    return pay


def note_tool() -> Tool:
    """A tool that changes the session's state."""

    @tool(attempts=20)
    async def note(what: str) -> ToolOutcome:
        """Note something."""
        return ToolOutcome(content=f"noted {what}", state={"noted": what})

    return note


def chaos_agent(
    ledger: Ledger,
    *,
    model_seconds: float = 0.03,
    tool_seconds: float = 0.02,
    aloud: bool = False,
    model: BookedModel | None = None,
    hooks: Hooks | None = None,
) -> Agent:
    """The agent over a ledger; ``…_seconds`` are means, ``model`` another one than the usual."""
    return Agent(
        name=AGENT,
        model=model or (AloudModel if aloud else BookedModel)(ledger, model_seconds),
        tools=[
            touch_tool(ledger, tool_seconds),
            pay_tool(ledger, tool_seconds),
            note_tool(),
            client_tool("tell", parameters=WHAT),
            client_tool("person", parameters=WHAT),
            *(agent_tool(name, agent=AGENT, thread=thread) for name, thread in HELPERS.items()),
        ],
        hooks=hooks or Hooks(),
    )
