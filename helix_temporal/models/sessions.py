"""What goes in and out of session workflows and their activities.

These models are in workflow histories: fields are added with defaults, never renamed or removed, and a
default never changes, since fields that were not set are not written.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from helix_temporal.models.agents import AgentFacts
from helix_temporal.models.base import Changes, CheckedObject, KnownFields, WireModel
from helix_temporal.models.ids import Id
from helix_temporal.models.messages import Finish, ToolCall, Usage
from helix_temporal.models.messages import UserMessage as UserMessage  # noqa: PLC0414 (known by this name)
from helix_temporal.models.states import Millis, SessionProperties, Submission, TracingContext
from helix_temporal.models.stored_messages import EMPTY, Epoch, Head, Position
from helix_temporal.models.waiting import (
    AnswerReceipt,
    CallOutcome,
    ParentLink,
    PendingCall,
    SubAgentCall,
    TakenAnswer,
    WaitingCall,
    Wake,
)

ArchiveMode = Literal["eventual", "required"]
"""Whether an answer may be given before it is archived."""

Mode = Literal["auto", "new", "continue", "fork"]
"""``auto`` creates the thread or continues it; the others insist."""


StopMode = Literal["interrupt", "abort"]
"""After the present step, or at once and without a trace of the turn."""


class TakenBack(WireModel):
    """A request to take turns back that was carried out.

    Attributes:
        to: Where the thread was cut.
        messages: That are asked anew.
        epoch: Of the open that did it.
        checkpoint: To which the state has yet to go back.
        cut: Short ids of the users' messages that were taken back, the newest: after a reset they are
            applied again, and are not asked again.
    """

    id: Id
    to: Head
    messages: tuple[UserMessage, ...] = ()
    epoch: Epoch = 0
    checkpoint: str | None = None
    cut: tuple[str, ...] = ()


class SessionOptions(WireModel, Changes):
    """How a session behaves; it remembers what was named, for executions that others start.

    Attributes:
        persistent: Wait for further messages; otherwise end after the answer.
        idle_timeout: Seconds without a message after which a persistent session archives and ends.
        max_steps: Model calls a turn may take; None for the agent's own number.
        max_turns_per_run: Continue as new after so many turns even if the server suggests nothing.
        suspend: While calls wait for a client or a person, ``wait`` keeps the execution open, with a
            durable timer to the first deadline; ``exit`` ends it, and an answer starts it again.  Sessions of
            sub-agents always end.
        while_suspended: A message that comes meanwhile waits for its turn (``queue``), or ends the
            suspended one (``supersede``).
        archive: ``required``: nobody is answered, and no tool is run, before the archive has the step.
            ``eventual``: while the archive does not answer, the hot store is enough, and it is caught up
            later.  None for the workers' setting.
    """

    persistent: bool = True
    idle_timeout: float = Field(default=300.0, gt=0, le=30 * 24 * 3600.0)
    max_steps: Annotated[int, Field(ge=1, le=1000)] | None = None
    max_turns_per_run: Annotated[int, Field(ge=1)] | None = None
    suspend: Literal["wait", "exit"] = "wait"
    while_suspended: Literal["queue", "supersede"] = "queue"
    archive: ArchiveMode | None = None

    def over(self, remembered: "SessionOptions | None") -> "SessionOptions":
        """These where they were named, the remembered ones elsewhere."""
        if remembered is None:
            return self
        return remembered.model_copy(update=self.changes())


class ExitReason(StrEnum):
    """Why a turn, or an execution of a session, ended."""

    COMPLETED = "completed"
    MAX_STEPS = "max_steps"
    WAITING = "waiting"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"
    FAILED = "failed"
    SUSPENDED = "suspended"
    SUPERSEDED = "superseded"


class Status(StrEnum):
    """What a session is doing."""

    OPENING = "opening"
    IDLE = "idle"
    RUNNING = "running"
    ENDING = "ending"
    COMPLETED = "completed"
    WAITING = "waiting"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    SUSPENDED = "suspended"


class AnswerRef(WireModel):
    """Where an answer stands in the thread."""

    position: Position
    id: str


class AskStatus(StrEnum):
    """How an ask ended."""

    ANSWERED = "answered"
    INTERRUPTED = "interrupted"
    REFUSED = "refused"
    FAILED = "failed"
    SUSPENDED = "suspended"
    """The turn waits for answers to its calls; ask again with the same message id for its end."""


class AskResult(WireModel):
    """What became of an ask; it always comes.

    Attributes:
        in_thread: The message is in the thread, whatever became of its turn.
        text: The answer's text; None when it is too long to travel, then ``answer`` says where it is.
        exit_reason: Why the turn ended.
        error: Type and message of what failed, or why it was refused.  None if nothing failed; the turn may
            still have no answer: see ``exit_reason`` (``max_steps``, ``interrupted``, …).
        finish: The answer is cut at the model's limit, withheld, or a refusal; None is a usual one.
        pending: With status ``suspended``: what the turn waits for.
        archived: Whether what is in the thread of this message, with the answer, is in the archive, too.
            False: the hot store alone has it, and the session archives it later.  None: the workers have no
            cold tier, or nothing of it is in the thread.
        thread_id: Where ``answer`` is, if it is too long to travel and the thread's id is not the session's.
        receipts: What became known with this turn of messages that were acknowledged and are lost; see
            `SessionInfo`.
    """

    status: AskStatus
    in_thread: bool = False
    text: str | None = None
    answer: AnswerRef | None = None
    exit_reason: ExitReason | None = None
    error: str | None = None
    finish: Finish | None = None
    pending: tuple[PendingCall, ...] = ()
    archived: bool | None = None
    receipts: "tuple[Receipt, ...]" = ()
    thread_id: Id | None = None


class StopRequest(WireModel):
    """Stop the turn under way: after its present step, or at once and without a trace of it.

    Attributes:
        run_id: Only if it is this run.
        suspended: Of a session that ended while it waited: it is opened first.
    """

    mode: StopMode = "interrupt"
    run_id: str | None = None
    suspended: bool = False


class StopResult(WireModel):
    """Whether a turn (that turn, if one was named) was under way.

    Attributes:
        run_id: Of the turn under way, be it stopped or not.
    """

    stopping: bool
    run_id: str | None = None


class RewindResult(WireModel):
    """Where the thread stands; ``done`` is false where nothing was taken back, then ``error`` says why."""

    done: bool
    head: Head = EMPTY
    error: str | None = None


class SubmitReply(WireModel):
    """What became of an answer.

    Attributes:
        result: If it was waited for: how the turn ended, or what it waits for now; None where an earlier
            execution had that turn.
    """

    submission: Submission
    result: AskResult | None = None

    @property
    def status(self) -> str:
        """``submitted``, ``already_completed``, ``not_pending`` or ``expired``."""
        return self.submission.status


class ForkFrom(WireModel, KnownFields):
    """The thread that a new one begins as, up to a committed position (its end if None)."""

    thread_id: Id
    at: Position | None = None


class Receipt(WireModel):
    """What one step of the end did, each independent of the others; or what happened to messages or state.

    Attributes:
        name: ``save``, ``flush``, ``evict``, ``end_turn`` and so on; of messages ``lost`` and ``sent``; of
            the session store ``state`` and ``repair``.
    """

    name: str
    ok: bool
    detail: str = ""


class CallPolicy(WireModel, KnownFields):
    """Time-outs and retries of the session's activities, in seconds, from the worker's settings."""

    store_start_to_close: float = 30.0
    store_schedule_to_close: float = 300.0
    retry_initial: float = 0.2
    retry_backoff: float = 2.0
    retry_maximum: float = 10.0
    heartbeat: float = 10.0
    model_start_to_close: float = 600.0
    tool_start_to_close: float = 300.0
    model_schedule_to_close: float = 1800.0
    finaliser_budget: float = 120.0
    flush_retry_maximum: float = 60.0
    flush_each_step: bool = True
    keeps_state: bool = False
    """There is a session store: it is told how the session ends."""
    archives: bool = True
    """There is a cold tier."""
    deployment: str | None = None
    """The identity of the worker's deployment; None says nothing."""
    roll_out: float = 600.0
    """How long another worker is tried where one lacks an agent, tool or hook."""


class SetPropertiesInput(WireModel):
    """Set properties of a session that exists.

    Attributes:
        epoch: Of the execution that asks; None for others.
    """

    session_id: Id
    properties: SessionProperties
    epoch: Epoch | None = None


class SetPropertiesResult(WireModel):
    """They are set; here is what a running session has to know of what the session store has now.

    Attributes:
        version: Of the state then: of two results the one with the higher version is the newer one.
    """

    expires_at: Millis | None = None
    tracing_context: TracingContext | None = None
    version: int = 0


class OpenHandle(WireModel):
    """An open thread, as the workflow carries it: also over continue-as-new."""

    epoch: Epoch
    head: Head
    slice_version: int = 0
    archived: bool = True


class ArchiveLag(WireModel):
    """How far the archive is behind a session.

    Attributes:
        start: Position of the first message that is not archived.
        messages: How many are not.
        bytes: Their size, as they are stored.
        since: When the first of them was acknowledged.
        error: Why the last try failed.
    """

    start: Position
    messages: int
    bytes: int = 0
    since: Millis = 0
    error: str = ""


class Answered(WireModel):
    """A message that was answered, and where."""

    message_id: str
    answer: AnswerRef


class SuspendedTurn(WireModel):
    """A turn that waits for answers, whole enough to go on with in another execution.

    Attributes:
        head: After the step that asks.
        start: Where the turn began.
        steps, usage: Of the turn so far.
        messages: Of the users whose turn it is.
        calls: Of the step that asks, in order.
        outcomes: Results and answers that are not in the thread yet.
        dropped, left: Messages that came with the turn and are not part of it.
        children: Calls of sub-agents that wait, too, in sessions that have ended.
        traceparent: As in `RunStepResult`.
    """

    head: Head
    start: Head
    run_id: str | None = None
    steps: int = 0
    usage: Usage = Usage()
    messages: tuple[UserMessage, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    waiting: tuple[WaitingCall, ...] = ()
    outcomes: tuple[CallOutcome, ...] = ()
    dropped: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    children: tuple[SubAgentCall, ...] = ()
    traceparent: str | None = None


class ResetPoint(WireModel):
    """The oldest place from which a workflow that was reset has gone on; see `RunStepInput`.

    Attributes:
        epoch: Under which it had the thread open then.
    """

    position: Position
    epoch: Epoch


class ReopenHeads(WireModel):
    """What a workflow knows when it opens again.

    Attributes:
        head: Where it knows the thread to stand.
        inputs: Of the step under way, which is kept if it stands there; see `Reopen`.
        reset: It was reset, and has not come to the end of what it did.
    """

    head: Head
    turn_start: Head
    inputs: tuple[str, ...] = ()
    answered: bool = True
    reset: bool = False


class Carried(WireModel):
    """What an execution takes along when it continues as new; never messages of the thread.

    Attributes:
        last_result: What became of the newest message, for the result of a session that ends by itself.
        used: What the execution used so far.
        tried: Requests to take turns back whose open failed, and may all the same have cut the thread.
        unsettled: What the thread is to be opened at first: an open ended without a verdict.
        stopping: How the suspended turn is to end, as somebody was told.
        unsaved_answers: Of the answered calls, those of sub-agents that no step has saved yet.
        early_answers: To questions that the turn has not come to once more.
        expires_at: When the session expires.
        lag: How far the archive is behind.
        lost: Receipts of lost messages that no `AskResult` has told yet.
        since: As in `RunStepInput`.
        asked: Ids of messages, waiting or of the turn that waits, that were asked and never sent.
    """

    handle: OpenHandle
    facts: AgentFacts
    policy: CallPolicy
    inbox: tuple[UserMessage, ...] = ()
    answered: tuple[Answered, ...] = ()
    turns: int = 0
    usage: Usage = Usage()
    close: bool = False
    values: CheckedObject | None = None
    saved_values: CheckedObject | None = None
    stale_values: bool = False
    notes: tuple[Receipt, ...] = ()
    last_result: AskResult | None = None
    used: Usage | None = None
    suspended: SuspendedTurn | None = None
    answered_calls: tuple[AnswerReceipt, ...] = ()
    tried: tuple[str, ...] = ()
    unsettled: ReopenHeads | None = None
    stopping: StopMode | None = None
    unsaved_answers: tuple[str, ...] = ()
    early_answers: tuple[TakenAnswer, ...] = ()
    expires_at: Millis | None = None
    lag: ArchiveLag | None = None
    lost: tuple[Receipt, ...] = ()
    since: ResetPoint | None = None
    tracing_context: TracingContext | None = None
    asked: tuple[str, ...] = ()


class Unopened(WireModel):
    """What an execution takes along that moves to another worker version before its session is open.

    Attributes:
        since: When a worker first lacked the agent.
        versions: Worker versions that lack it, in the order in which they were asked.
        asked: As in `Carried`.
        interrupted: A parent asked to end after the present step.
        early_answers: That came before the turn that waits for them was known.
    """

    since: Millis
    versions: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    close: bool = False
    interrupted: bool = False
    early_answers: tuple[TakenAnswer, ...] = ()


class SessionInput(WireModel):
    """Starts, or restarts, a session.

    Attributes:
        thread_id: Defaults to the thread that the session has, at first to one of the session's id.
        fork_from: For mode ``fork``.
        rewind_to: Open at this earlier committed head.
        expects_ask: Started for an ask that arrives with it; ends at once if it was rejected.
        messages: Already waiting when it starts.
        metadata: Reaches hooks and model calls.
        parent: Whose sub-agent it is.
        woken: Its turn was suspended, and may go on.
        options: Those that are named; the others are as the session remembers them.
        properties: Of the session: set when it is opened; the session store has them.
        unopened: The run before moved to another worker version before the session was open.
    """

    session_id: Id
    agent: str
    thread_id: Id | None = None
    mode: Mode = "auto"
    fork_from: ForkFrom | None = None
    rewind_to: Head | None = None
    options: SessionOptions = SessionOptions()
    expects_ask: bool = False
    messages: tuple[UserMessage, ...] = ()
    metadata: dict[str, str] = Field(default_factory=dict)
    carried: Carried | None = None
    parent: ParentLink | None = None
    woken: Wake | None = None
    properties: SessionProperties | None = None
    unopened: Unopened | None = None

    @property
    def thread(self) -> str:
        """The thread that the session is opened on, unless it is found to have another one."""
        return self.thread_id or self.session_id

    @property
    def named_options(self) -> SessionOptions | None:
        """Options that are to be remembered; a sub-agent behaves as each of its callers says."""
        return self.options if self.parent is None and self.options.model_fields_set else None


class SessionResult(WireModel):
    """How an execution ended.

    Attributes:
        usage: Of the session, with its earlier executions.
        receipts: What each clean-up step did.
        error: Type and message of the failure, if it failed.
        last_result: In a session that is not persistent: what became of its message.  The text is there up to
            2 KiB; ``answer`` says where a longer one is.
        used: What this execution used; in a session that is not persistent.
        due: In a session that is not persistent, and has ended while sub-agents of its wait: when the
            first of their calls has used up its time.
    """

    session_id: str
    thread_id: str
    exit_reason: ExitReason
    status: Status
    head: Head = EMPTY
    turns: int = 0
    usage: Usage = Usage()
    receipts: tuple[Receipt, ...] = ()
    error: str | None = None
    last_result: AskResult | None = None
    used: Usage | None = None
    due: Millis | None = None


class FailingCall(WireModel):
    """A call of the session's workflow that has failed so far, and is tried again.

    Attributes:
        activity: Its type, such as ``helix.sessions.run_step``.
        attempt: Number of the attempt under way, or that comes next.
        error: Type and text of the newest failure, cut at 500 characters.
        worker: Identity of the worker that the newest failure was at; it may be gone.
        since: When the call was made first, in ms; 0 where the newest events of the history do not tell.
        workflow_id: Of the sub-agent's session whose call it is; None: of the session itself.
    """

    activity: str
    attempt: int
    error: str
    worker: str = ""
    since: Millis = 0
    workflow_id: str | None = None


class SessionInfo(WireModel):
    """The answer to the query ``status``.

    Attributes:
        version: Goes up whenever something happens in the session, also over its executions.
        run_id: Of the turn under way.
        repairs: Results of tool calls that had to be mended for model calls of this execution.
        options: How it behaves.
        root_session_id: Of a sub-agent: the session that a person talks to.
        archived: Nothing is in the hot store alone (or there is no cold tier).
        lag: How far the archive is behind, where it is.
        receipts: What each clean-up step did, once it has ended; before that, what had to be put right.  One
            named ``lost`` tells positions of messages that were acknowledged and are gone: ``lost: 8..9``.
        failing: Calls that have failed so far, and are tried again; as `SessionHandle.get_status` finds them.
    """

    session_id: str
    thread_id: str
    status: Status
    agent: str
    turns: int = 0
    waiting: int = 0
    head: Head = EMPTY
    epoch: int = 0
    archived: bool = True
    usage: Usage = Usage()
    exit_reason: ExitReason | None = None
    receipts: tuple[Receipt, ...] = ()
    error: str | None = None
    pending: tuple[PendingCall, ...] = ()
    version: int = 0
    run_id: str | None = None
    repairs: int = 0
    options: SessionOptions | None = None
    root_session_id: str | None = None
    lag: ArchiveLag | None = None
    failing: tuple[FailingCall, ...] = ()
