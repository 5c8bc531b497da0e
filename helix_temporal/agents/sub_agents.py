"""Sub-agents: a tool behind which another agent has a session of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, get_args

from pydantic import BaseModel, JsonValue

from helix_temporal.agents.agent import Agent
from helix_temporal.agents.checks import check_name, check_seconds, to_seconds
from helix_temporal.agents.tools import Tool
from helix_temporal.errors import AgentNotServedError, InvalidConfigError, InvalidRequestError
from helix_temporal.models.agents import ChildThread, ToolFacts
from helix_temporal.models.base import only_set

DEFAULT_TIMEOUT: Final = 3600.0
"""Seconds that a sub-agent has for its answer."""

DEFAULT_START_WITHIN: Final = 60.0
"""Seconds in which a worker of another task queue must begin with a sub-agent's session."""

TASK: Final = "task"
_PARAMETERS: Final[dict[str, JsonValue]] = {
    "type": "object",
    "properties": {TASK: {"type": "string", "description": "What to do, with all that it takes to know."}},
    "required": [TASK],
    "additionalProperties": False,
}


@dataclass(frozen=True, kw_only=True)
class AgentTool(Tool):
    """A tool that is another agent; made by `agent_tool`.

    Attributes:
        agent: The agent's name.
        thread: What it knows at its start.
        task_queue: Where its session runs; None for that of the session that calls.
        argument: The argument that is its message; None for all of them, as JSON.
        start_within: Seconds in which a worker of ``task_queue`` must begin with its session.
    """

    agent: str
    thread: ChildThread = "new"
    task_queue: str | None = None
    argument: str | None = TASK
    start_within: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.agent, f"tool {self.name!r}: agent")
        if self.thread not in get_args(ChildThread):
            raise InvalidConfigError(
                f"tool {self.name!r}: thread must be one of {', '.join(get_args(ChildThread))}, "
                f"got {self.thread!r}"
            )

    def build_facts(self, agent: str) -> ToolFacts:
        """What the workflow must know to run it."""
        given = {
            "task_queue": self.task_queue,
            "argument": self.argument,
            # The worker that calls is alive itself, so that its own queue is served.
            "schedule_to_start": None if self.task_queue is None else self.start_within,
            **self.waiting_fields(),
        }
        return ToolFacts(
            name=self.name,
            activity=f"helix.tools.{agent}.{self.name}",
            kind="agent",
            agent=self.agent,
            thread=self.thread,
            schedule_to_close=self.timeout,
            **only_set(**given),
        )


def agent_tool(
    name: str,
    *,
    agent: str | Agent,
    thread: ChildThread = "new",
    description: str = "",
    parameters: Mapping[str, JsonValue] | type[BaseModel] | None = None,
    timeout: float | timedelta = DEFAULT_TIMEOUT,
    task_queue: str | None = None,
    approval: bool = False,
    answer_within: float | timedelta | None = None,
    start_within: float | timedelta | None = DEFAULT_START_WITHIN,
) -> Tool:
    """Make an agent a tool of another: each call is a session of its own, a child of the caller's.

    Args:
        name: What the model calls it.
        agent: The agent or its name; the workers of the task queue must serve it.
        thread: ``new``: it knows nothing but its task.  ``fork``: it begins with a copy of the caller's
            finished turns.  ``continue``: all calls of this tool by one session go on with one thread.
        description: For the model.
        parameters: JSON schema of the arguments, or a pydantic model: the sub-agent then gets them as
            JSON.  By default there is one, ``task``, and the sub-agent gets its text.
        timeout: Seconds that it has for its answer, waiting for people included.
        task_queue: Where its session runs; its worker must have the same stores.
        approval: Each call waits until somebody has approved it.
        answer_within: Seconds that somebody has for that; None for no deadline.
        start_within: With ``task_queue``: seconds in which a worker must begin with the session; after that
            the call is an error that names `AgentNotServedError`.  None waits for as long as ``timeout``.

    Raises:
        InvalidConfigError: A name or an option is outside what is allowed.
    """
    seconds, begins = _check_times(name, timeout, start_within)
    return AgentTool(
        name=name,
        handler=_refuse_to_run,
        description=description,
        parameters=_PARAMETERS if parameters is None else _parameters_schema(parameters),
        timeout=seconds,
        approval=approval,
        answer_within=to_seconds(answer_within),
        agent=agent.name if isinstance(agent, Agent) else agent,
        thread=thread,
        task_queue=task_queue,
        argument=TASK if parameters is None else None,
        start_within=begins,
    )


def check_served(agents: Sequence[Agent], task_queue: str | None = None) -> None:
    """Refuse agents whose sub-agents the same workers would have to serve, and do not.

    Args:
        agents: All that they serve.
        task_queue: Theirs; without it only sub-agents are looked at that name none.

    Raises:
        AgentNotServedError: One is not among them; the message says whose tool it is.
        InvalidConfigError: Something else is among them.
    """
    for each in agents:
        if not isinstance(each, Agent):
            raise InvalidConfigError(f"agents: {each!r} is no Agent; give agents alone")
    served = {each.name for each in agents}
    for agent in agents:
        for tool in agent.tools:
            if not isinstance(tool, AgentTool) or tool.agent in served:
                continue
            if tool.task_queue is None or tool.task_queue == task_queue:
                raise AgentNotServedError(
                    f"agent {agent.name!r}: its tool {tool.name!r} is agent {tool.agent!r}, which these "
                    f"workers would have to serve; served: {', '.join(sorted(served))}. Give it to them as "
                    "well, or name the task queue of workers that have it"
                )


def _check_times(
    name: str, timeout: float | timedelta, start_within: float | timedelta | None
) -> tuple[float | None, float | None]:
    """Both in seconds, once they are known to be in their range."""
    seconds, begins = to_seconds(timeout), to_seconds(start_within)
    check_seconds(seconds, f"tool {name!r}: timeout")
    if begins is not None:
        check_seconds(begins, f"tool {name!r}: start_within")
    return seconds, begins


def _parameters_schema(parameters: Mapping[str, JsonValue] | type[BaseModel]) -> dict[str, JsonValue]:
    return dict(parameters) if isinstance(parameters, Mapping) else parameters.model_json_schema()


def _refuse_to_run(arguments: Mapping[str, Any], context: Any, /) -> Any:  # noqa: ARG001 (what a handler gets)
    raise InvalidRequestError(
        "a sub-agent is a child workflow, which only the session workflow can start; "
        "give the façade a Temporal client"
    )
