"""What the agents of these tests say and do, decided by each test for its own sessions."""

import asyncio
import inspect
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from typing import Any

from helix_temporal.agents import (
    Agent,
    Hooks,
    ModelRequest,
    ModelResponse,
    ToolContext,
    ask_user,
    client_tool,
    tool,
)
from helix_temporal.models.messages import ToolCall, Usage

Answer = ModelResponse | str


def echo(request: ModelRequest) -> str:
    """The number of messages it was given, and the last one's text."""
    return f"{len(request.messages)}: {request.messages[-1].text}"


def calls(*what: str, name: str = "act", **arguments: Any) -> ModelResponse:
    """An answer that asks for tools, with ids as a careless provider gives them."""
    return ModelResponse(
        tool_calls=tuple(
            ToolCall(id=f"call_{at}", name=name, arguments={"what": each, **arguments})
            for at, each in enumerate(what)
        ),
        usage=Usage(input_tokens=10, output_tokens=1),
    )


def first_tools_then(answer: Answer, *what: str, name: str = "act") -> Callable[[ModelRequest], Answer]:
    """Ask for tools when a user has spoken, give ``answer`` when they have answered."""

    def script(request: ModelRequest) -> Answer:
        return calls(*what, name=name) if request.messages[-1].role == "user" else answer

    return script


class Speaker:
    """The model of the agent ``streaming``: speaks as the desk says."""

    def __init__(self, desk: "Desk") -> None:
        self.desk = desk

    def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        return self.desk.streams[request.session_id](request)


class Desk:
    """The model, the tool ``act`` and all hooks of every test agent.

    Attributes:
        scripts: What the model answers, by session; as ``default`` where nothing is said.
        default: What the model answers otherwise.
        streams: What the model of the agent ``streaming`` says piece by piece, by session.
        acts: What the tool ``act`` does, by session; gives ``what`` back where nothing is said.
        hooks: What a hook does, by session and name; hears only where nothing is said.
        requests: Every model call, by session.
        heard: Every hook event, by session: its name and the event.
        contexts: Every call of ``act``, by session.
    """

    def __init__(self) -> None:
        self.scripts: dict[str, Callable[[ModelRequest], Any]] = {}
        self.default: Callable[[ModelRequest], Any] = echo
        self.streams: dict[str, Callable[[ModelRequest], AsyncIterator[Any]]] = {}
        self.acts: dict[str, Callable[[str, ToolContext], Any]] = {}
        self.hooks: dict[tuple[str, str], Callable[[Any], Any]] = {}
        self.requests: dict[str, list[ModelRequest]] = defaultdict(list)
        self.heard: dict[str, list[tuple[str, Any]]] = defaultdict(list)
        self.contexts: dict[str, list[ToolContext]] = defaultdict(list)

    async def generate(self, request: ModelRequest) -> ModelResponse:
        self.requests[request.session_id].append(request)
        script: Callable[[ModelRequest], Any] = self.scripts.get(request.session_id, self.default)
        given = script(request)
        answer = await given if inspect.isawaitable(given) else given
        return ModelResponse(content=answer) if isinstance(answer, str) else answer

    async def act(self, what: str, context: ToolContext) -> Any:
        self.contexts[context.session_id].append(context)
        do = self.acts.get(context.session_id)
        done = do(what, context) if do is not None else what
        return await done if inspect.isawaitable(done) else done

    def hook(self, name: str) -> Callable[[Any], Any]:
        async def run(event: Any) -> Any:
            self.heard[event.session_id].append((name, event))
            do = self.hooks.get((event.session_id, name))
            if do is None:
                return None
            done = do(event)
            return await done if inspect.isawaitable(done) else done

        return run

    def names_heard(self, session_id: str) -> list[str]:
        """Names of the hooks that ran for a session, in order."""
        return [name for name, _ in self.heard[session_id]]

    def agents(self) -> list[Agent]:
        """The agents that the stand serves."""

        @tool(attempts=2)
        async def act(what: str, context: ToolContext, padding: str = "") -> Any:
            """Do something.

            Args:
                what: Decides what is done.
                padding: Makes arguments large.
                context: Whose call it is.
            """
            return await self.act(what + padding, context)

        @tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        @tool(approval=True)
        async def wipe(what: str, context: ToolContext) -> Any:
            """Wipe something."""
            self.contexts[context.session_id].append(context)
            return f"wiped {what}"

        @client_tool
        def locate(what: str) -> str:
            """Where something is."""
            raise AssertionError("this runs nowhere")

        hurry = client_tool("hurry", answer_within=86_400)
        soon, later = client_tool("soon", answer_within=0.1), client_tool("later", answer_within=3)
        names = Hooks().__dataclass_fields__
        return [
            Agent(name="main", model=self, tools=[act, add]),
            Agent(name="streaming", model=Speaker(self), tools=[act]),
            Agent(name="serial", model=self, tools=[act], parallel_tools=False),
            Agent(name="people", model=self, tools=[act, wipe, locate, hurry, soon, later, ask_user()]),
            Agent(name="two-steps", model=self, tools=[act], max_steps=2),
            Agent(
                name="hooked",
                model=self,
                tools=[act, locate],
                hooks=Hooks(**{each: self.hook(each) for each in names}),
            ),
        ]


class Gate:
    """Holds whoever passes until it is opened, and tells when somebody has come."""

    def __init__(self) -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()

    async def passing(self) -> None:
        self.reached.set()
        await self.opened.wait()

    def then(self, script: Callable[[ModelRequest], Answer] = echo) -> Callable[[ModelRequest], Any]:
        """A model script that answers once the gate is open."""

        async def held(request: ModelRequest) -> Answer:
            await self.passing()
            return script(request)

        return held
