"""Agents that call each other, each doing what the words it is given say."""

import inspect
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from temporalio.exceptions import ApplicationError

from helix_temporal.agents import (
    Agent,
    Finish,
    Hooks,
    ModelRequest,
    ModelResponse,
    Tool,
    ToolOutcome,
    agent_tool,
    ask_user,
    tool,
)
from helix_temporal.models.agents import BeforeUserMessage, UserMessageDecision
from helix_temporal.models.messages import ToolCall, Usage
from tests.workflows._desk import Gate

HURRIED = 6
"""Seconds in which a question of the agent ``hurried`` must be answered; a busy machine is slow to end it."""


def ask(*tasks: str, tool_name: str = "helper", **others: Any) -> ModelResponse:
    """An answer that gives tasks to a sub-agent."""
    return ModelResponse(
        tool_calls=tuple(
            ToolCall(id=f"call_{at}", name=tool_name, arguments={"task": task, **others})
            for at, task in enumerate(tasks)
        ),
        usage=Usage(input_tokens=100, output_tokens=1),
    )


def ask_both(question: str, task: str) -> ModelResponse:
    """An answer that has one sub-agent ask people, and another one work."""
    return ModelResponse(
        tool_calls=(
            ToolCall(id="call_0", name="asker", arguments={"task": question}),
            ToolCall(id="call_1", name="helper", arguments={"task": task}),
        )
    )


class Team:
    """The model of all these agents.

    Attributes:
        leads: What an agent that has sub-agents answers, by root session; asks its `helper` for what it
            was told, and gives its result back, where nothing is said.
        gates: Holds a helper whose task is this word.
        heard: Texts of the messages that a model was given, by session.
        traces: The trace of each model call, by root session.
    """

    def __init__(self) -> None:
        self.leads: dict[str, Callable[[ModelRequest], Any]] = {}
        self.gates: dict[str, Gate] = defaultdict(Gate)
        self.heard: dict[str, list[list[str]]] = defaultdict(list)
        self.traces: dict[str, list[Any]] = defaultdict(list)

    async def generate(self, request: ModelRequest) -> ModelResponse:
        self.heard[request.session_id].append([each.text for each in request.messages])
        last = request.messages[-1]
        root = request.session_id.split(">", maxsplit=1)[0]
        self.traces[root].append(request.tracing_context)
        if request.agent == "helper":
            return await self._help(request)
        if request.agent in {"asker", "hurried"}:
            return _questions(request)
        if request.agent == "careful":
            word, _, rest = last.text.partition(" ")
            if word == "hold":
                await self.gates[rest].passing()
            return _acts(request)
        lead = self.leads.get(root)
        if lead is not None and request.session_id == root:
            given: Any = lead(request)
            if inspect.isawaitable(given):
                given = await given
            return ModelResponse(given) if isinstance(given, str) else given
        if last.role == "user":
            return ask(last.text)
        return ModelResponse(last.text, usage=Usage(input_tokens=10, output_tokens=1))

    async def _help(self, request: ModelRequest) -> ModelResponse:
        last, usage = request.messages[-1], Usage(input_tokens=1, output_tokens=1)
        word, _, rest = last.text.partition(" ")
        if word == "hold":
            await self.gates[rest].passing()
        if word == "tool" and last.role == "user":
            return ModelResponse(
                tool_calls=(ToolCall(id="call_0", name="act", arguments={"what": rest}),), usage=usage
            )
        if word == "fail":
            raise ApplicationError("on purpose", type="PlayedError", non_retryable=True)
        if word == "refuse":
            return ModelResponse("I would rather not", usage=usage, finish=Finish.REFUSAL)
        if request.messages[0].text == "loop":
            return ModelResponse(
                tool_calls=(ToolCall(id="call_0", name="act", arguments={"what": "again"}),), usage=usage
            )
        if word == "large":
            return ModelResponse("x" * int(rest), usage=usage)
        return ModelResponse(f"{len(request.messages)}: {last.text}", usage=usage)

    async def act(self, what: str) -> str:
        if what.startswith("hold "):
            await self.gates[what.removeprefix("hold ")].passing()
        return what

    def agents(self) -> list[Agent]:
        """Everybody."""

        @tool(attempts=1)
        async def act(what: str) -> str | ToolOutcome:
            """Do what is said."""
            return ToolOutcome("go back", rewind=True) if what == "rewind" else await self.act(what)

        @tool(name="act", approval=True)
        async def careful_act(what: str) -> str:
            """Do what is said, once a person has agreed."""
            return await self.act(what)

        def leads(name: str, *tools: Tool, **options: Any) -> Agent:
            return Agent(name=name, model=self, tools=[*tools, act], **options)

        return [
            Agent(name="helper", model=self, tools=[act], max_steps=2),
            Agent(name="picky", model=self, hooks=Hooks(before_user_message=_refuse)),
            leads("new", agent_tool("helper", agent="helper")),
            leads("fork", agent_tool("helper", agent="helper", thread="fork")),
            leads("continue", agent_tool("helper", agent="helper", thread="continue")),
            leads("middle", agent_tool("helper", agent="helper")),
            leads("top", agent_tool("helper", agent="middle")),
            leads("nowhere", agent_tool("helper", agent="helper", task_queue="nobody-listens", timeout=1)),
            leads("far", agent_tool("helper", agent="helper", task_queue="nobody-listens", timeout=30)),
            leads(
                "unserved", agent_tool("helper", agent="helper", task_queue="nobody-listens", start_within=1)
            ),
            leads("itself", agent_tool("helper", agent="itself")),
            leads("of-picky", agent_tool("helper", agent="picky")),
            Agent(name="asker", model=self, tools=[ask_user()]),
            Agent(name="hurried", model=self, tools=[ask_user(answer_within=HURRIED)]),
            Agent(name="careful", model=self, tools=[careful_act]),
            leads("leads-careful", agent_tool("helper", agent="careful")),
            leads("approved", agent_tool("helper", agent="helper", approval=True)),
            leads("approved-below", agent_tool("helper", agent="approved")),
            leads("serial", agent_tool("helper", agent="helper"), parallel_tools=False),
            leads("asks", agent_tool("helper", agent="asker")),
            leads("asks-on", agent_tool("helper", agent="asker", thread="continue")),
            leads("asks-below", agent_tool("helper", agent="asks")),
            leads("asks-shortly", agent_tool("helper", agent="asker", timeout=8)),
            leads("asks-shortly-below", agent_tool("helper", agent="asks-shortly")),
            leads("asks-hurried", agent_tool("helper", agent="hurried")),
            leads("asks-hurried-below", agent_tool("helper", agent="asks-hurried")),
            leads("asks-approved", agent_tool("helper", agent="asker", approval=True)),
            leads("asks-too", agent_tool("helper", agent="asker"), ask_user()),
            leads("asks-in-order", agent_tool("helper", agent="asker"), parallel_tools=False),
            leads("mixed", agent_tool("helper", agent="helper"), agent_tool("asker", agent="asker")),
        ]


def _questions(request: ModelRequest) -> ModelResponse:
    """Ask the user each word of the task; then tell what the user said."""
    results: list[str] = []
    for message in reversed(request.messages):
        if message.role != "tool":
            break
        results.insert(0, message.text)
    if results:
        return ModelResponse(f"they said {' '.join(results)}"[:300_000])
    words = request.messages[-1].text.split()
    return ModelResponse(
        tool_calls=tuple(
            ToolCall(id=f"call_{at}", name="ask_user", arguments={"question": word})
            for at, word in enumerate(words)
        )
    )


def _acts(request: ModelRequest) -> ModelResponse:
    """Act by each word of the task, held by the gate of that name; then tell what was done."""
    if request.messages[-1].role == "tool":
        done = [each.text for each in request.messages if each.role == "tool"]
        return ModelResponse(", ".join(done))
    words = request.messages[-1].text.split()
    return ModelResponse(
        tool_calls=tuple(
            ToolCall(id=f"call_{at}", name="act", arguments={"what": f"hold {word}"})
            for at, word in enumerate(words)
        )
    )


def _refuse(event: BeforeUserMessage) -> UserMessageDecision:
    return UserMessageDecision(refuse="not this one")
