"""Agents: a model with its instructions, tools, hooks and limits, known by name."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from typing import Any, get_args

from helix_temporal.agents.checks import call_function, check_count, check_list, check_name, check_type
from helix_temporal.agents.context import Compaction, ContextPolicy
from helix_temporal.agents.model import Model, StreamingModel, check_model
from helix_temporal.agents.tools import Tool
from helix_temporal.errors import (
    AgentNotServedError,
    InvalidConfigError,
    InvalidMessageError,
    InvalidRequestError,
    NotServedError,
)
from helix_temporal.models.agents import (
    AgentFacts,
    HookEvent,
    HookFacts,
    InstructionsMode,
    UserMessageDecision,
)
from helix_temporal.models.base import canonical_json


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionsContext:
    """For whom instructions are wanted; ``metadata`` is the session's."""

    agent: str
    session_id: str
    thread_id: str
    metadata: Mapping[str, str] = field(default_factory=dict)


Instructions = str | Callable[[InstructionsContext], Any]
"""Text, or a function (async or plain) of `InstructionsContext` that gives it."""

Hook = Callable[[Any], Any]
"""A function, async or plain, of one event model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Functions, async or plain, that are told what happens; each runs as an activity.

    A hook may run more than once for one event.  One that fails never fails the session, except that
    a message whose ``before_user_message`` fails is refused.

    Attributes:
        session_started: Gets `SessionStarted`.
        session_ended: Gets `SessionEnded`.
        turn_completed: Gets `TurnCompleted`.
        before_user_message: Gets `BeforeUserMessage`; gives None to let it pass, other text for it, or
            a `UserMessageDecision`.
        after_user_message: Gets `AfterUserMessage`.

    Raises:
        InvalidConfigError: One is no function.
    """

    session_started: Hook | None = None
    session_ended: Hook | None = None
    turn_completed: Hook | None = None
    before_user_message: Hook | None = None
    after_user_message: Hook | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            hook = getattr(self, each.name)
            if hook is not None and not callable(hook):
                raise InvalidConfigError(f"hook {each.name}: a function expected, got {type(hook).__name__}")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the hooks that are there."""
        return tuple(each.name for each in fields(self) if getattr(self, each.name) is not None)

    async def run_hook(self, name: str, event: HookEvent) -> UserMessageDecision | None:
        """Run one hook; only ``before_user_message`` gives a decision.

        Raises:
            InvalidRequestError: There is no such hook.
            InvalidMessageError: ``before_user_message`` gave something that is no decision.
        """
        if name not in self.names:
            raise InvalidRequestError(
                f"the agent has no hook {name!r}; it has: {', '.join(self.names) or 'none'}"
            )
        result = await call_function(getattr(self, name), event)
        return UserMessageDecision.of(result) if name == "before_user_message" else None


@dataclass(frozen=True, kw_only=True)
class Agent:
    """A model with its instructions and tools, known by its name to workflows and clients.

    Attributes:
        name: 1–64 of ``[A-Za-z0-9_-]``; part of activity names, so renaming it breaks what runs.
        instructions: The system prompt; given to each model call, no row of the thread.
        context: How much of the thread a model call gets.
        compaction: When the older part is summed up for it; None for never.
        max_steps: Model calls that one turn may take.
        parallel_tools: Run the tools of one step side by side.
        instructions_mode: Whose instructions a session gets later; see `InstructionsMode`.
        hide_errors: As `Tool.hide_errors`, for all its tools.

    Raises:
        InvalidConfigError: Something is not what it should be, or two tools have one name.
    """

    name: str
    model: Model | StreamingModel
    instructions: Instructions = ""
    tools: Sequence[Tool] = ()
    context: ContextPolicy = field(default_factory=ContextPolicy)
    compaction: Compaction | None = None
    max_steps: int = 50
    parallel_tools: bool = True
    instructions_mode: InstructionsMode = "agent"
    hooks: Hooks = field(default_factory=Hooks)
    hide_errors: bool = False

    def __post_init__(self) -> None:
        check_name(self.name, "agent")
        check_list(self.tools, f"agent {self.name!r}: tools")
        object.__setattr__(self, "tools", tuple(self.tools))
        _check_tools(self.name, self.tools)
        check_model(self.model, f"agent {self.name!r}")
        if not isinstance(self.instructions, str) and not callable(self.instructions):
            raise InvalidConfigError(
                f"agent {self.name!r}: instructions must be text or a function, got "
                f"{type(self.instructions).__name__}"
            )
        check_type(self.context, ContextPolicy, f"agent {self.name!r}: context")
        if self.compaction is not None:
            check_type(self.compaction, Compaction, f"agent {self.name!r}: compaction")
        check_type(self.hooks, Hooks, f"agent {self.name!r}: hooks")
        check_count(self.max_steps, f"agent {self.name!r}: max_steps")
        if self.instructions_mode not in get_args(InstructionsMode):
            raise InvalidConfigError(
                f"agent {self.name!r}: instructions_mode must be 'agent' or 'pinned', "
                f"got {self.instructions_mode!r}"
            )

    @property
    def adapter(self) -> str:
        """Name of the model's adapter, such as ``anthropic``; empty for a model that has none."""
        return str(getattr(self.model, "adapter", ""))

    def find_tool(self, name: str) -> Tool | None:
        """The tool of this name, or None: models do ask for tools that aren't there."""
        return next((tool for tool in self.tools if tool.name == name), None)

    async def instructions_for(self, context: InstructionsContext) -> str:
        """The system prompt for a session.

        Raises:
            InvalidMessageError: The function gave something that is no text.
        """
        if isinstance(self.instructions, str):
            return self.instructions
        text = await call_function(self.instructions, context)
        if not isinstance(text, str):
            raise InvalidMessageError(
                f"agent {self.name!r}: instructions returned {type(text).__name__}, text expected"
            )
        return text

    def digest_prompt(self, instructions: str) -> str:
        """Sixteen hexadecimal digits that stand for these instructions and the agent's tools.

        A model call that was given the same ones, in the same order, has the same digest.
        """
        return _digest_texts(instructions, self._tools_text)

    @cached_property
    def _tools_text(self) -> bytes:
        return canonical_json([tool.spec.model_dump(mode="json") for tool in self.tools])

    def build_facts(self) -> AgentFacts:
        """What a workflow must know of the agent; activity names are derived from the names."""
        hooks = {hook: f"helix.hooks.{self.name}.{hook}" for hook in self.hooks.names}
        return AgentFacts(
            name=self.name,
            max_steps=self.max_steps,
            parallel_tools=self.parallel_tools,
            instructions_mode=self.instructions_mode,
            tools=tuple(tool.build_facts(self.name) for tool in self.tools),
            hooks=HookFacts(**hooks),
        )


@lru_cache(maxsize=16)  # each step asks, and most agents have one text
def _digest_texts(instructions: str, tools: bytes) -> str:
    # The size parts the two: no end of the one can be taken for a begin of the other.
    text = instructions.encode(errors="surrogatepass")
    return hashlib.sha256(b"%d:%b%b" % (len(text), text, tools)).hexdigest()[:16]


def _check_tools(agent: str, tools: Sequence[object]) -> None:
    seen: set[str] = set()
    for each in tools:
        if not isinstance(each, Tool):
            raise InvalidConfigError(
                f"agent {agent!r}: {each!r} is no Tool; decorate the function with @tool"
            )
        if each.name in seen:
            raise InvalidConfigError(f"agent {agent!r}: two tools are named {each.name!r}; rename one")
        seen.add(each.name)


class AgentRegistry:
    """The agents that a worker serves, by name.

    Args:
        agents: All of them.
        roll_out: Seconds for which other workers are tried when one of them is missing here.

    Raises:
        InvalidConfigError: Two agents have one name.
    """

    def __init__(self, agents: Iterable[Agent] = (), *, roll_out: float = 600.0) -> None:
        self._agents: dict[str, Agent] = {}
        self._retry_for_ms = int(roll_out * 1000)
        for agent in agents:
            if agent.name in self._agents:
                raise InvalidConfigError(f"two agents are named {agent.name!r}; rename one")
            self._agents[agent.name] = agent

    def get_agent(self, name: str) -> Agent:
        """The agent of this name.

        Raises:
            AgentNotServedError: This worker serves none of that name.
        """
        agent = self._agents.get(name)
        if agent is None:
            names = ", ".join(sorted(self._agents)) or "none"
            raise AgentNotServedError(
                f"agent {name!r} is not known to the worker that was asked; it knows: {names}. "
                "Start workers that serve the agent, or correct its name",
                retry_for_ms=self._retry_for_ms,
                known=names,
            )
        return agent

    def with_tools(self, name: str, tools: Iterable[str]) -> Agent:
        """The agent of this name, if it has these tools here.

        Raises:
            NotServedError: It lacks one of them in this worker.
            AgentNotServedError: This worker serves none of that name.
        """
        agent = self.get_agent(name)
        for each in tools:
            if agent.find_tool(each) is None:
                raise NotServedError(
                    f"tool {each!r} of agent {name!r} is not known to the worker that was asked; start "
                    "workers "
                    "whose agent has it",
                    retry_for_ms=self._retry_for_ms,
                )
        return agent

    def __iter__(self) -> Iterator[Agent]:
        return iter(self._agents.values())
