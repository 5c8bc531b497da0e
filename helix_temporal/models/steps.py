"""Inputs and results of the activities ``helix.sessions.*`` and of tools.

These models are in workflow histories: fields are added with defaults, never renamed or removed, and a
default never changes, since fields that were not set are not written.
"""

from pydantic import Field, JsonValue

from helix_temporal.models.agents import AgentFacts
from helix_temporal.models.base import CheckedObject, WireModel
from helix_temporal.models.ids import Id
from helix_temporal.models.messages import ChildEnd as ChildEnd  # noqa: PLC0414 (known by this name)
from helix_temporal.models.messages import Finish, ToolCall, Usage
from helix_temporal.models.messages import ToolResult as ToolResult  # noqa: PLC0414 (known by this name)
from helix_temporal.models.sessions import (
    Answered,
    AnswerRef,
    ArchiveMode,
    CallPolicy,
    ExitReason,
    ForkFrom,
    Mode,
    OpenHandle,
    Receipt,
    ResetPoint,
    SessionOptions,
    SuspendedTurn,
    TakenBack,
    UserMessage,
)
from helix_temporal.models.sessions import ReopenHeads as ReopenHeads  # noqa: PLC0414 (known by this name)
from helix_temporal.models.states import Millis, SessionProperties, TracingContext
from helix_temporal.models.stored_messages import Epoch, Head, Position
from helix_temporal.models.waiting import AnswerReceipt, CallOutcome, ParentLink, Suspension, WaitingCall


class OpenSessionInput(WireModel):
    """Open a session's thread: create, continue, fork, rewind or re-open it.

    Attributes:
        abandoned: The run of a turn that was aborted: it ends, and what its tools staged is dropped.
        parent: Whose sub-agent the session is.
        cut_children: Sub-agents' sessions whose calls were cut off.
        take_back: With ``rewind_to``: what the thread is to remember of the request.
        checkpoint: With ``rewind_to``: the state goes back to this checkpoint.
        known_epoch: Under which the workflow has it open; what a higher one did it does not know, by a reset.
        options: Those that were named; they are remembered.
        properties: Of the session, to be set; naming ``expires_at`` renews one that has expired.
        again: The workflow was reset to before it opened the thread, and knows nothing of what it did.
        names_thread: Somebody named the thread; else a session that has another one goes on with that.
        waits_for_agent: A worker that lacks the agent fails the open at once: the workflow tries again.
    """

    session_id: Id
    thread_id: Id
    agent: str
    owner: str
    mode: Mode = "auto"
    fork_from: ForkFrom | None = None
    reopen: ReopenHeads | None = None
    rewind_to: Head | None = None
    metadata: dict[str, str] = Field(default_factory=dict)
    abandoned: str | None = None
    parent: ParentLink | None = None
    cut_children: tuple[str, ...] = ()
    take_back: TakenBack | None = None
    checkpoint: str | None = None
    known_epoch: Epoch | None = None
    options: SessionOptions | None = None
    properties: SessionProperties | None = None
    again: bool = False
    names_thread: bool = False
    waits_for_agent: bool = False


class OpenSessionResult(WireModel):
    """An open session.

    Attributes:
        created: The thread is new.
        cut: Messages of an unfinished turn that were cut.
        turns, usage: From the slice.
        values: The custom state, from the session store or the slice.
        stale_values: The slice has others: they go with the next step.
        notes: What had to be put right in the session store.
        suspended: The turn under way, which waits for answers to its calls.
        answered: Calls that were answered, the newest.
        options: How the session behaves; None where that is what was asked for.
        expires_at: When the session expires; None: never.
        metadata: Those that the session has, where it was opened with others.
        tracing_context: What the session store has.
        reset: Turns were finished, or taken back, of which the workflow does not know, since it was reset: it
            goes on from the handle's head.
        under_way: With ``reset``: messages of the turn that stands unfinished behind that head.  They have
            the next turn: its tools may have run, and another turn would cut it.
        goes_on: After a reset: behind the handle's head stands more of the turn under way.
        thread_id: Of the thread that was opened, where the session has another one than was asked for.
    """

    handle: OpenHandle
    facts: AgentFacts
    policy: CallPolicy
    created: bool = False
    cut: int = 0
    turns: int = 0
    usage: Usage = Usage()
    values: CheckedObject | None = None
    stale_values: bool = False
    notes: tuple[Receipt, ...] = ()
    suspended: SuspendedTurn | None = None
    answered: tuple[AnswerReceipt, ...] = ()
    options: SessionOptions | None = None
    expires_at: Millis | None = None
    metadata: dict[str, str] | None = None
    tracing_context: TracingContext | None = None
    reset: bool = False
    under_way: tuple[UserMessage, ...] = ()
    goes_on: bool = False
    thread_id: Id | None = None


class StepInput(WireModel):
    """One input of a step: a user's message, or a tool's result in call order.

    Attributes:
        ref: Names a payload, or a message of another thread, that holds the content.
        child: With the result of a sub-agent.
        answered: With the result of a call that a client, or a person, answered.
        staged, unfinished: As in `ToolResult`.
        traceparent: With a user's message: its sender's span.
    """

    id: Id
    text: str = ""
    ref: str | None = None
    call: str | None = None
    name: str | None = None
    is_error: bool = False
    parts: list[dict[str, JsonValue]] | None = None
    usage: Usage | None = None
    metadata: dict[str, str] = Field(default_factory=dict)
    child: ChildEnd | None = None
    answered: AnswerReceipt | None = None
    staged: str = ""
    traceparent: str | None = None
    unfinished: bool = False


class RunStepInput(WireModel):
    """One model call and everything around it.

    Attributes:
        turn: Number of the turn in the session, from 1.
        values: The application's state if it changed since the last step.
        changed: Keys of ``values`` that the application changed or removed; None: those that are other
            than what is stored.
        run_id: Of the turn, the same for all its steps.
        answered: Calls of sub-agents that were answered, to be remembered.
        archive: As in `SessionOptions`.
        earlier_refs: Names of content that earlier steps of the turn took; dropped once the turn is over.
        since: After a reset messages are applied again that are in the thread already: they are looked for
            from here on, not only among the newest ones.
    """

    session_id: Id
    thread_id: Id | None = None
    agent: str
    epoch: Epoch
    head: Head
    inputs: tuple[StepInput, ...]
    turn: int = 1
    values: CheckedObject | None = None
    changed: tuple[str, ...] | None = None
    run_id: str | None = None
    answered: tuple[AnswerReceipt, ...] = ()
    archive: ArchiveMode | None = None
    earlier_refs: tuple[str, ...] = ()
    since: ResetPoint | None = None
    tracing_context: TracingContext | None = None


class RunStepResult(WireModel):
    """A step by reference: what the workflow must know, nothing that grows with the thread.

    Attributes:
        head: Where the thread stands after the step.
        text: The answer's text, if the turn ends here and it is short enough.
        calls: Tools to run, in order; their arguments are in the thread when they are large.
        usage: Of this step's model call.
        archived: The step is in the archive (or there is none).
        backlog: Packed bytes that are not.
        answer: When every input had been answered before: where. The head is unchanged then.
        dropped: Ids of inputs that were in the thread already, or were taken back with their turns.
        answers: Where those of them that came with others were answered.
        left: Ids of inputs that the step, which stood already, does not have: they are the next turn's.
        values: The application's state, when staged changes of tools went into it.
        stop: Somebody asked the session store to stop this run: ``interrupt`` or ``abort``.
        finish: Why the model stopped, where that is worth telling; see `Message`.
        repairs: Results of tool calls that had to be moved, replaced or left out for this model call.
        waiting: Those of the calls that a client, or a person, must answer.
        notes: What had to be put right in the session store.
        reason: Why the step is not archived.
        unknown: Those of the calls whose tool the agent does not have, by their number.
        outcomes: Results of all calls of a step from which the thread has gone on: its workflow was reset to
            before that.  Only where the step waited for people, or the turn still has its name.
        goes_on: Behind the step, which stands, there is more of the turn: its workflow was reset.
        run: The turn's name in the thread, under which it goes on; None where it is the one that was given.
        traceparent: Of a turn that has a trace and goes on: its root, for those who run its calls.
    """

    head: Head
    text: str | None = None
    calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None
    archived: bool = True
    backlog: int = 0
    slice_version: int = 0
    answer: AnswerRef | None = None
    dropped: tuple[str, ...] = ()
    values: CheckedObject | None = None
    stop: str | None = None
    left: tuple[str, ...] = ()
    finish: Finish | None = None
    repairs: int = 0
    waiting: tuple[WaitingCall, ...] = ()
    notes: tuple[Receipt, ...] = ()
    reason: str = ""
    answers: tuple[Answered, ...] = ()
    unknown: tuple[int, ...] = ()
    outcomes: tuple[CallOutcome, ...] = ()
    goes_on: bool = False
    run: str | None = None
    traceparent: str | None = None


class EndTurnInput(WireModel):
    """Commit tool results without a further model call: the turn ends here, for ``reason``.

    Attributes:
        answered, archive, earlier_refs: As in `RunStepInput`.
    """

    session_id: Id
    thread_id: Id | None = None
    epoch: Epoch
    head: Head
    inputs: tuple[StepInput, ...]
    run_id: str | None = None
    reason: ExitReason | None = None
    answered: tuple[AnswerReceipt, ...] = ()
    archive: ArchiveMode | None = None
    earlier_refs: tuple[str, ...] = ()


class SaveValuesInput(WireModel):
    """Save the application's values in the slice, the rest of it stays; and how the session ended.

    Attributes:
        values: None if they are saved already.
        changed: Keys that the application changed or removed; None: all of ``values`` count.
        session_id: With ``status``: the session store is told.
        ends_run: The turn under way did not come to its end.
        run_id: Of that turn.
        cut_children: Sub-agents' sessions whose calls were cut off.
        outcomes: What is known of the calls of the turn that stays suspended.
        suspended: All that it waits for, where sub-agents are among that.
        answered: Calls of sub-agents that were answered, to be remembered.
    """

    thread_id: Id
    epoch: Epoch
    values: CheckedObject | None = None
    changed: tuple[str, ...] | None = None
    session_id: Id | None = None
    status: str | None = None
    error: str | None = None
    ends_run: bool = False
    cut_children: tuple[str, ...] = ()
    outcomes: tuple[CallOutcome, ...] | None = None
    suspended: Suspension | None = None
    answered: tuple[AnswerReceipt, ...] = ()
    run_id: str | None = None


class SaveValuesResult(WireModel):
    """The slice's new version."""

    version: int


class ToolInput(WireModel):
    """One tool call.

    Attributes:
        key: The same for every attempt of this call, different for any other.
        position: Of the step that will take the result: names its payload.
        run_id: Of the turn: what the tool changes of the state is staged under it.
        epoch: Fences that: an attempt from before the session was opened again changes nothing.
        step: Number of the step that asks, in its turn; 0 where that is not known.
        traceparent: The turn's root, if it has a trace.
    """

    session_id: Id
    thread_id: Id
    agent: str
    tool: str
    call: ToolCall
    key: str
    turn: int
    position: Position
    large: bool = False
    metadata: dict[str, str] = Field(default_factory=dict)
    run_id: str | None = None
    epoch: Epoch | None = None
    step: int = Field(default=0, ge=0)
    tracing_context: TracingContext | None = None
    traceparent: str | None = None


class PutTextInput(WireModel):
    """Put a long text, or parts, aside, for a message that will name it.

    Attributes:
        parts: Instead of the text.
    """

    thread_id: Id
    message_id: Id
    text: str = ""
    parts: list[dict[str, JsonValue]] | None = None


class PutTextResult(WireModel):
    """The reference for `UserMessage.ref`."""

    ref: str


class AgentFactsInput(WireModel):
    """What is to be known of an agent, from a worker where it has these tools."""

    agent: str
    tools: tuple[str, ...] = ()


class LoadAnswerInput(WireModel):
    """Read one answer that is in the thread."""

    thread_id: Id
    answer: AnswerRef


class LoadAnswerResult(WireModel):
    """Its text; None when it is too long to travel."""

    text: str | None = None
