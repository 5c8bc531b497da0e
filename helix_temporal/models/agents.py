"""What workflow, activities, models and hooks tell each other about agents."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from pydantic import Field, JsonValue, model_validator

from helix_temporal.errors import InvalidMessageError
from helix_temporal.models.base import Cost, JsonObject, WireModel, check_text
from helix_temporal.models.ids import Id
from helix_temporal.models.messages import Finish, Message, ToolCall, Usage
from helix_temporal.models.states import Text, TracingContext

InstructionsMode = Literal["agent", "pinned"]
"""``agent``: each model call gets the agent's current instructions; ``pinned``: those of the session's
creation, kept in its slice."""


ToolKind = Literal["server", "client", "agent"]
"""Who executes a tool: a worker; a client, or a person, who submits the result; another agent."""

ChildThread = Literal["new", "fork", "continue"]
"""What a sub-agent knows at its start: nothing; the finished turns of its parent's thread; what was said
between the two before."""


class ToolSpec(WireModel):
    """What a model is told of a tool; ``parameters`` is a JSON schema of an object."""

    name: str
    description: str = ""
    parameters: dict[str, JsonValue] = Field(default_factory=dict)


class ToolFacts(WireModel):
    """How the workflow runs a tool.

    Attributes:
        name: What the model calls it.
        activity: Its activity type.
        start_to_close: Seconds that one attempt may take; None for the worker's default.
        heartbeat: Seconds without a sign of life after which an attempt counts as lost; None for the
            worker's default.
        max_attempts: Attempts before its failure is given to the model.
        schedule_to_close: Seconds that all attempts together may take; None for no such limit.
        kind: Who executes it.
        approval: Somebody must approve each call before it runs.
        answer_within: Seconds that a client or a person has for an answer; None for no deadline.
        agent: With kind ``agent``: which one.
        thread: With kind ``agent``: what it knows at its start.
        task_queue: With kind ``agent``: where its session runs; None for that of the session that calls.
        argument: With kind ``agent``: the argument that is its message; None for all of them, as JSON.
        schedule_to_start: With kind ``agent``: seconds in which a worker must begin with its session; None
            for as long as it has for its answer.
    """

    name: str
    activity: str
    start_to_close: float | None = Field(default=None, gt=0)
    heartbeat: float | None = Field(default=None, gt=0)
    max_attempts: int = Field(default=3, ge=1)
    schedule_to_close: float | None = Field(default=None, gt=0)
    kind: ToolKind = "server"
    approval: bool = False
    answer_within: float | None = Field(default=None, gt=0)
    agent: str | None = None
    thread: ChildThread = "new"
    task_queue: str | None = None
    argument: str | None = None
    schedule_to_start: float | None = Field(default=None, gt=0)


class HookFacts(WireModel):
    """The activity type of each hook that the agent has; None where it has none."""

    session_started: str | None = None
    session_ended: str | None = None
    turn_completed: str | None = None
    before_user_message: str | None = None
    after_user_message: str | None = None


class AgentFacts(WireModel):
    """What the workflow learns of an agent when it opens a session.

    Attributes:
        max_steps: Model calls that one turn may take.
        parallel_tools: The tools of one step run side by side; otherwise one after the other.
    """

    name: str
    max_steps: int = Field(default=50, ge=1)
    parallel_tools: bool = True
    instructions_mode: InstructionsMode = "agent"
    tools: tuple[ToolFacts, ...] = ()
    hooks: HookFacts = HookFacts()

    def tool(self, name: str) -> ToolFacts | None:
        """The tool of this name, or None if the agent has none."""
        return next((tool for tool in self.tools if tool.name == name), None)


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call.

    Attributes:
        messages: The context, oldest first, each tool call directly followed by its result.
        instructions: The system prompt; empty for none.
        metadata: The session's.
        step_key: The same for every attempt of this step, different for any other step: fit for a
            provider's idempotency key.  A step is another one once its thread was opened again, since
            Redis lost it, the session was reset, or a new execution took over.
        tracing_context: The session's, which its caller has set; None if nobody has.
    """

    agent: str
    session_id: str
    thread_id: str
    messages: tuple[Message, ...]
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    step_key: str = ""
    tracing_context: TracingContext | None = None


class _CheckedCost(WireModel):
    cost_usd: Cost | None


@dataclass(frozen=True, slots=True)
class ModelResponse:
    """A model's answer; its message gets its id from us.

    Attributes:
        content: Text or parts.
        tool_calls: Tools that it asks for, in order; none ends the turn.
        usage: What the call used.
        provider: What the provider's adapter needs back unchanged with the message.
        stop_reason: Why the model stopped, in the provider's words.
        finish: The same in ours; None is for models that do not say.
        cost_usd: What the call cost, in US dollars: a Decimal, an int or decimal text, no float.  None where
            the model does not know it, as those of this package.

    Raises:
        InvalidRequestError: The cost is no exact amount of 0 or more.
    """

    content: str | list[JsonObject] = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None
    provider: JsonObject = field(default_factory=dict)
    stop_reason: str | None = None
    finish: Finish | None = None
    cost_usd: Decimal | None = None

    def __post_init__(self) -> None:
        """Check the cost while the model's own code runs, whose mistake it would be."""
        object.__setattr__(self, "cost_usd", _CheckedCost(cost_usd=self.cost_usd).cost_usd)


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text as it comes."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's reasoning as it comes; it is shown, not stored."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """The model begins to ask for a tool; its arguments follow in pieces."""

    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolArgumentsDelta:
    """A piece of a tool call's arguments, as JSON text, as it comes."""

    call_id: str
    text: str


ModelEvent = TextDelta | ReasoningDelta | ToolCallStarted | ToolArgumentsDelta | ModelResponse
"""What a streaming model yields; the response comes last."""


class HookEvent(WireModel):
    """What every hook is told.

    Attributes:
        metadata: The session's, as its creator gave it.
    """

    session_id: Id
    thread_id: Id
    agent: str
    metadata: dict[str, str] = Field(default_factory=dict)


class SessionStarted(HookEvent):
    """The session is open and serves turns; ``mode`` is ``new``, ``continue`` or ``fork``."""

    mode: str


class SessionEnded(HookEvent):
    """An execution of the session ends; told after its state was saved and its thread archived and dropped.

    It is told again at a later end where a message came meanwhile, and the execution went on with that.
    An execution that continues as new does not tell it.

    Attributes:
        exit_reason: ``completed``, ``max_steps``, ``waiting``, ``interrupted``, ``cancelled``,
            ``failed``, ``suspended`` or ``superseded``.
        turns: Turns that this execution served.
        usage: Sum over them.
        error: Type and message of the failure, if it failed.
    """

    exit_reason: str
    turns: int = 0
    usage: Usage = Usage()
    error: str | None = None


class TurnCompleted(HookEvent):
    """A turn is committed.

    Attributes:
        turn: Number of the turn in the session, from 1.
        steps: Model calls that it took.
        exit_reason: As in `SessionEnded`.
        answer_id: The message that answered; None if the turn ended without an answer.
        usage: Sum over its model calls and tools.
    """

    turn: int
    steps: int
    exit_reason: str = "completed"
    answer_id: Id | None = None
    usage: Usage = Usage()


class BeforeUserMessage(HookEvent):
    """A user's message has arrived and is not in the thread yet; the hook may change or refuse it.

    Attributes:
        ref: Names the text where it is too long to travel through the workflow.  Hooks of agents get
            the whole text; functions of an `AgentSession` get an empty one and this name.
    """

    message_id: Id
    text: str
    ref: str | None = None


class AfterUserMessage(HookEvent):
    """A user's message is in the thread, as ``text`` says; a long text is empty here: read the thread."""

    message_id: Id
    text: str


class UserMessageDecision(WireModel):
    """What a `BeforeUserMessage` hook decides; nothing given lets the message pass as it is.

    Attributes:
        text: Stands in the thread instead of the user's text.
        refuse: Why the message is refused; the sender is told and nothing enters the thread.
        ref: Set by the worker instead of ``text`` when that is too long to travel.
    """

    text: Text | None = None
    ref: Text | None = None
    refuse: Text | None = None

    @property
    def changes(self) -> bool:
        """Whether another text stands in the thread."""
        return self.text is not None or self.ref is not None

    @classmethod
    def of(cls, result: object) -> "UserMessageDecision":
        """What a hook's result decides: None lets the message pass, a text stands instead of it.

        Raises:
            InvalidMessageError: It is something else, or a text that no store can hold.
        """
        if result is None:
            return cls()
        if isinstance(result, UserMessageDecision):
            return result
        if isinstance(result, str):
            check_text(result, "the text that before_user_message returned")
            return cls(text=result)
        what = type(result).__name__
        raise InvalidMessageError(
            f"before_user_message returned {what}; None, text or UserMessageDecision expected"
        )

    @model_validator(mode="after")
    def _check_exclusive(self) -> "UserMessageDecision":
        if self.text is not None and self.refuse is not None:
            raise ValueError("a message is either changed or refused: give text or refuse, not both")
        return self
