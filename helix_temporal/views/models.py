"""What people see of sessions: plain data without HTML, as the command line prints it and the pages show it.

Times are milliseconds since 1970.  Text is as it is stored: who shows it makes control characters visible.
"""

from decimal import Decimal
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from helix_temporal.models.checkpoints import RunStatus
from helix_temporal.models.messages import Finish
from helix_temporal.models.states import ErrorInfo, SessionStatus

Millis = Annotated[int, Field(ge=0)]
CallStatus = Literal["running", "waiting", "done", "failed", "denied", "expired", "unanswered"]
"""``unanswered``: the thread has no result of it, and nothing waits for one."""
FAILED_CALLS: Final = frozenset[CallStatus]({"failed", "expired"})
"""What counts as failed.  A person who denied a call decided: nothing went wrong."""


class View(BaseModel):
    """Base of what is shown; written as JSON with every field, so that its schema says what comes."""

    model_config = ConfigDict(frozen=True, extra="forbid")


# ---- sums -------------------------------------------------------------------------------------------


class ShownTokens(View):
    """Tokens; ``input`` holds what was read from and written to a cache, ``output`` the reasoning."""

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_written: int = 0
    reasoning: int = 0

    @property
    def total(self) -> int:
        """All that went in and came out."""
        return self.input + self.output


class UsageSums(View):
    """What a session used, or it and its descendants.

    Attributes:
        model_calls, tool_calls, failed_tool_calls, sub_agent_calls, failed_sub_agent_calls: How many were
            recorded: those that have ended, also in the turn under way; a sub-agent's call with the step that
            takes its result.
        cost_usd: None where no entry has one.
        duration_ms: Of all model and tool calls together, of those of which it is known.
        by_model: Tokens by the model's name.
        by_tool: Calls by the tool's name: all, failed, milliseconds together.
        session_ids: Whose entries were added up.
        complete: False: too many entries to be added up for a page; only the tokens and the model calls of
            the session itself, as its thread tells them.
    """

    tokens: ShownTokens = ShownTokens()
    model_calls: int = 0
    tool_calls: int = 0
    failed_tool_calls: int = 0
    sub_agent_calls: int = 0
    failed_sub_agent_calls: int = 0
    cost_usd: Decimal | None = None
    duration_ms: int = 0
    by_model: dict[str, ShownTokens] = Field(default_factory=dict)
    by_tool: "dict[str, ToolSums]" = Field(default_factory=dict)
    custom: dict[str, dict[str, Decimal]] = Field(default_factory=dict)
    session_ids: tuple[str, ...] = ()
    first_at: Millis | None = None
    last_at: Millis | None = None
    complete: bool = True

    @property
    def calls(self) -> int:
        """As a conversation counts them: those of tools, and those of sub-agents."""
        return self.tool_calls + self.sub_agent_calls

    @property
    def failed_calls(self) -> int:
        """Those of them that failed."""
        return self.failed_tool_calls + self.failed_sub_agent_calls


class ToolSums(View):
    """Calls of one tool; ``duration_ms`` of all together of which it is known, 0 where of none."""

    calls: int = 0
    failed: int = 0
    duration_ms: int = 0


# ---- sessions ---------------------------------------------------------------------------------------


class SessionOverview(View):
    """A session in a list.

    Attributes:
        status: None where it is not known: its thread alone is there, and waits for nobody.
        steps: Model calls so far.
        parent_session_id: Whose sub-agent it is.
        metadata: As the application set it.
        created_at, updated_at: 0 where they are not known: its thread alone is there.
    """

    session_id: str
    agent: str = ""
    user_id: str | None = None
    title: str = ""
    status: SessionStatus | None
    steps: int = 0
    tags: tuple[str, ...] = ()
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    parent_session_id: str | None = None
    expires_at: Millis | None = None
    created_at: Millis = 0
    updated_at: Millis = 0

    @property
    def agent_type(self) -> str:
        """``agent``, as `SessionState` has it: queries of stores compare both alike."""
        return self.agent


class SessionList(View):
    """A page of sessions; ``next_cursor`` is None on the last one.

    Attributes:
        problem: Why not all of them are there: some are damaged.
    """

    sessions: tuple[SessionOverview, ...] = ()
    next_cursor: str | None = None
    problem: str | None = None


class WaitingFor(View):
    """A call that waits for a client, a person or a sub-agent.

    Attributes:
        call_id: What an answer names.
        kind: ``approval``: somebody must allow it; ``client``: somebody must give its result.
        arguments: None where they could not be read.
        turn: Whose call it is; None where that is not known.
    """

    call_id: str
    tool: str
    kind: Literal["client", "approval", "sub_agent"]
    arguments: JsonValue = None
    since: Millis | None = None
    until: Millis | None = None
    run_id: str | None = None
    turn: int | None = None
    sub_session_id: str | None = None


class ThreadPlace(View):
    """How a thread is stored.

    Attributes:
        messages: Of finished turns; ``unfinished`` those of the turn under way.  What a store that is away,
            or damage, keeps from being known is None, here and below.
        bytes: Packed.
        hot: The hot store has it; None where that does not answer.
        archived: Messages that the archive has; None where there is no archive, or it is not known.
        unarchived: Messages that only the hot store has.
        epoch: Number of the open that may write; ``opened_at`` when that was.
        manifest_version, segments: Of the archive; None and none where there is none, or it does not answer.
        segments_left_out: How many older ones are not listed.
        objects, object_bytes: In the archive, with what is not collected yet; None as above.
        problem: What kept this from being read in full: a store that is away, a damaged archive.
    """

    thread_id: str
    messages: int | None = 0
    unfinished: int | None = 0
    bytes: int | None = 0
    hot: bool | None = False
    archived: int | None = None
    unarchived: int | None = 0
    epoch: int | None = 0
    opened_at: Millis | None = None
    owner: str = ""
    closed: bool | None = False
    slice_version: int | None = 0
    slice_bytes: int | None = 0
    adapter: str = ""
    manifest_version: int | None = None
    segments: tuple["SegmentPlace", ...] = ()
    segments_left_out: int = 0
    objects: int | None = None
    object_bytes: int | None = None
    problem: str | None = None

    @property
    def all_messages(self) -> int | None:
        """Those of the turn under way too; None where they are not known."""
        return None if self.messages is None else self.messages + (self.unfinished or 0)


class SegmentPlace(View):
    """One object of an archive and the messages in it: positions from ``first`` up to ``stop``."""

    name: str
    first: int
    stop: int
    bytes: int


class SessionView(View):
    """Where one session stands.

    Attributes:
        overview: As in a list.
        mode: ``standard`` or ``persistent``; None where it was never written.
        messages, turns: In the thread, with the turn under way, of which ``place`` tells the messages apart;
            ``turns`` are those that were started.  None where that is not known.
        live_run: The run under way, or that waits.
        waiting: Whom it waits for.
        children, forked_from: Other sessions that belong to it.
        problem: A store that is away, or damage, in the way of the rest.
    """

    overview: SessionOverview
    mode: str | None = None
    version: int = 0
    thread_id: str = ""
    messages: int | None = 0
    turns: int | None = 0
    live_run: "TurnAttempt | None" = None
    waiting: tuple[WaitingFor, ...] = ()
    failure_reason: str | None = None
    error: ErrorInfo | None = None
    output: JsonValue = None
    children: tuple[str, ...] = ()
    root_session_id: str | None = None
    forked_from: str | None = None
    usage: UsageSums = UsageSums()
    place: ThreadPlace | None = None
    problem: str | None = None


# ---- conversation -----------------------------------------------------------------------------------


class ModelCall(View):
    """One model call as the usage store has it: also of steps that were thrown away.

    Attributes:
        duration_ms: None where not known.
    """

    model: str
    step: int = 0
    at: Millis = 0
    tokens: ShownTokens = ShownTokens()
    cost_usd: Decimal | None = None
    duration_ms: int | None = None


class TurnAttempt(View):
    """One run of a turn.

    Attributes:
        turn: Its number in the session, dense over all runs.
        kept: Its messages are in the thread; False: it was aborted, cut or taken back.
        start: Position in the thread before it.
        workflow_id, workflow_run_id: Of the execution that ran it, for Temporal's page.
        asked: In a conversation, of one that failed or was aborted and is not in the thread: what the user
            said, 2,000 characters of all together; nothing where the stream does not have it any more.
    """

    run_id: str
    turn: int
    status: RunStatus
    reason: str | None = None
    error: ErrorInfo | None = None
    steps: int = 0
    start: int = 0
    kept: bool = True
    started_at: Millis | None = None
    ended_at: Millis | None = None
    workflow_id: str | None = None
    workflow_run_id: str | None = None
    model_calls: tuple[ModelCall, ...] = ()
    asked: tuple[str, ...] = ()

    @property
    def is_gone(self) -> bool:
        """Whether it ended whole, and its turn was taken back (`rewind`, `edit`, …) or lost since."""
        return self.status is RunStatus.COMPLETED and not self.kept

    @property
    def duration_ms(self) -> int | None:
        """How long it took, in milliseconds; None while it goes on."""
        if self.started_at is None or self.ended_at is None:
            return None
        return max(0, self.ended_at - self.started_at)


class RunList(View):
    """Runs of a session, newest first, also those whose messages are not in the thread.

    Their model calls are told in a session of up to 500 steps; of a longer one its turns tell them.
    """

    session_id: str
    runs: tuple[TurnAttempt, ...] = ()
    next_cursor: str | None = None
    problem: str | None = None


class ConversationCall(View):
    """A tool call with its result.

    Attributes:
        call_id: The provider's, in its message; ``position`` is of the message that asks, ``at`` the call's
            number in it.
        status: Of one without a result in the thread that has ended it is how it ended: its tool, or whoever
            answered, told so.
        result: Text or parts; None where there is none.
        result_position: Of the message with the result.
        result_due: It has ended, and the turn goes on: its result goes to the model, and into the thread,
            with the next step.
        error: Why it failed; of one whose result is due as far as its session's stream tells.
        duration_ms: Of the attempt of its tool that ended it, or of the sub-agent; None where nobody measured
            it.
        attempts: How often its tool was tried; 1 also where nobody counted.
        sub_session_id: Of the sub-agent that it called.
        cut: Characters of arguments and result that a page leaves out; `read_message` has them.
    """

    call_id: str
    name: str
    position: int
    at: int = 0
    arguments: JsonValue = None
    status: CallStatus = "done"
    result: JsonValue = None
    result_position: int | None = None
    result_due: bool = False
    error: str | None = None
    duration_ms: int | None = None
    attempts: int = 1
    sub_session_id: str | None = None
    waiting: WaitingFor | None = None
    cut: int = 0


class ConversationMessage(View):
    """A message of a turn; results of tools stand with their calls instead.

    Attributes:
        parts: None where the content is plain text; else images, files, thinking as stored, bytes left out.
        size: Bytes as stored.
        cut: Characters of the text that a page leaves out; `read_message` has them.
        calls_left_out: How many calls a page leaves out; `read_message` has them.
        step: Of the turn, from 1, for a model's answer: names the model call whose context can be shown.
        damage: Why the body could not be read; the rest is empty then.
    """

    message_id: str
    position: int
    role: Literal["system", "user", "assistant", "tool", "foreign"]
    text: str = ""
    thinking: str = ""
    parts: tuple[dict[str, JsonValue], ...] | None = None
    calls: tuple[ConversationCall, ...] = ()
    calls_left_out: int = 0
    is_error: bool = False
    finish: str | None = None
    format: str | None = None
    step: int | None = None
    tokens: ShownTokens | None = None
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    size: int = 0
    cut: int = 0
    damage: str | None = None

    @property
    def cut_short_by(self) -> str | None:
        """``finish`` where it says that the answer is not as the model would have ended it."""
        return None if self.finish in {Finish.STOP, Finish.TOOL_CALLS} else self.finish


class TurnPart(View):
    """Which part of a turn a page has, where the turn is longer than a page.

    Attributes:
        begins: It has the turn's first message.
        ends: It has the turn's last message, of one under way the last that there is.
        first_step: The number of the first step in it, from 1; None: it has none, or its number is not known.
    """

    begins: bool = True
    ends: bool = True
    first_step: int | None = None


class ConversationTurn(View):
    """A turn: from a user's message up to the next one.

    Attributes:
        number: From 1; the number of its kept run where the session store has runs, else counted in the
            thread; None where neither tells (a page in the middle of a thread without runs).
        start, stop: Positions in the thread: of its first message on the page, and after its last one there.
        part_of_turn: Whether these are all of its messages.
        messages: None where `session messages --json` tells of a run that left nothing in the thread: it is
            the one in ``attempts``.
        attempts: Runs at this place, oldest first, also those that were thrown away; the newest 20.
        unfinished: It is under way, or waits.
        duration_ms: From the start of its kept run to its end; None where not known.
        discarded_answers: Answers of its kept run that were paid for, and that another attempt of their step
            has replaced, as far as usage knows: of a worker that is killed as a model speaks it knows none.
    """

    number: int | None = None
    start: int
    stop: int
    part_of_turn: TurnPart = TurnPart()
    messages: tuple[ConversationMessage, ...] = ()
    attempts: tuple[TurnAttempt, ...] = ()
    unfinished: bool = False
    tokens: ShownTokens = ShownTokens()
    cost_usd: Decimal | None = None
    duration_ms: int | None = None
    tool_calls: int = 0
    failed_calls: int = 0
    discarded_answers: int = 0


class ConversationPage(View):
    """Turns of a thread, oldest first.

    Attributes:
        before: Give it to read the turns before these; None at the begin.
        after: Give it to read the turns behind these; None at the end.
        committed, head: Where the finished turns end, and the thread; None where that is not known.
        lost: Attempts that belong to no turn of the thread any more (cut or taken back); the newest 20.
            Never one under way; where ``problem`` says that not all can be read, only those known to be gone.
        problem: What could not be read and why: the archive is away, or damaged at a place.
    """

    session_id: str
    thread_id: str
    turns: tuple[ConversationTurn, ...] = ()
    before: int | None = None
    after: int | None = None
    committed: int | None = 0
    head: int | None = 0
    lost: tuple[TurnAttempt, ...] = ()
    problem: str | None = None


class WholeMessage(View):
    """A message with all its text, and the calls with whole arguments and results."""

    session_id: str
    thread_id: str
    turn: int | None = None
    message: ConversationMessage


class FoundCall(View):
    """A tool call that a search has found, and where it stands.

    Attributes:
        in_thread: The message that asks is in the thread.  It is not if its turn was aborted or taken back,
            or if the thread cannot be read: arguments and result are None then.
        problem: Why the thread cannot be read, so that nothing is known of the message; else None.
        message_position: Of the message that asks; where its turn began, if it is not in the thread.
    """

    session_id: str
    user_id: str | None = None
    agent: str = ""
    turn: int | None = None
    step: int | None = None
    in_thread: bool = True
    problem: str | None = None
    message_position: int
    at: Millis | None = None
    call: ConversationCall


# ---- context ----------------------------------------------------------------------------------------


class ContextPart(View):
    """One part of what a model was given.

    Attributes:
        kind: ``instructions``, ``tools`` (one part for each tool), ``summary``, ``message``, or ``input``: a
            message that came into the thread with this step.
        text: Its beginning; empty where it is not known.
        position: In the thread, for messages.
        tokens: Our estimate, scaled so that all parts together have what the provider counted.
        estimated: The provider counted nothing: the tokens are the estimate itself.
        cut: Characters of the text that are left out; `read_message` has those of a message.
    """

    kind: Literal["instructions", "tools", "summary", "message", "input"]
    role: str = ""
    name: str = ""
    text: str = ""
    position: int | None = None
    tokens: int = 0
    estimated: bool = True
    cut: int = 0


class ModelContext(View):
    """What the model was given in one step.

    Attributes:
        recorded: The step recorded where its window began, and which summary and instructions it had; False:
            worked out from the agent as it is now, by the rule that steps use.
        first: Position of the first message that it was given; those before were left out.
        left_out: How many messages were.
        step: Of the turn, from 1; None where the turn began too far back to be counted.
        instructions_changed: The agent's instructions and tools are other ones now than then; None: not
            known.
        provider_tokens: What the provider counted of all that went in; None where it told nothing.
        answer: Position of the message that the call gave.
    """

    session_id: str
    turn: int | None = None
    step: int | None = None
    answer: int
    agent: str = ""
    model: str = ""
    recorded: bool = False
    first: int = 0
    left_out: int = 0
    instructions_changed: bool | None = None
    parts: tuple[ContextPart, ...] = ()
    provider_tokens: ShownTokens | None = None
    notes: tuple[str, ...] = ()


# ---- state ------------------------------------------------------------------------------------------


class CheckpointOverview(View):
    """A checkpoint in a list."""

    checkpoint_id: str
    seq: int
    version: int
    step: int
    run_id: str | None = None
    status: SessionStatus
    position: int = 0
    at: Millis = 0
    superseded_by: str | None = None
    tool_calls: tuple[str, ...] = ()


class CheckpointList(View):
    """Checkpoints, newest first."""

    session_id: str
    checkpoints: tuple[CheckpointOverview, ...] = ()
    next_cursor: str | None = None


class StateAt(View):
    """The application's values, now or at a checkpoint."""

    session_id: str
    checkpoint: CheckpointOverview | None = None
    version: int = 0
    values: dict[str, JsonValue] = Field(default_factory=dict)


class Difference(View):
    """One place at which two values differ; ``path`` is a JSON pointer (RFC 6901)."""

    path: str
    change: Literal["added", "removed", "changed"]
    before: JsonValue = None
    after: JsonValue = None


class StateComparison(View):
    """Two states of a session, and where they differ; ``after`` None is the present one."""

    session_id: str
    before: CheckpointOverview | None = None
    after: CheckpointOverview | None = None
    differences: tuple[Difference, ...] = ()
    cut: int = 0


# ---- tree -------------------------------------------------------------------------------------------


class SessionBranch(View):
    """A session with those of its sub-agents.

    Attributes:
        usage: Its own; ``sums`` with all below it.
        hidden: Children that the viewer may not see.
        left_out: Children beyond the limits of a tree.
    """

    overview: SessionOverview
    usage: UsageSums = UsageSums()
    sums: UsageSums = UsageSums()
    children: tuple["SessionBranch", ...] = ()
    hidden: int = 0
    left_out: int = 0


# ---- maintenance ------------------------------------------------------------------------------------


class ScheduleRun(View):
    """One run of a schedule.

    Attributes:
        status: As Temporal names it, in small letters: ``running``, ``completed``, ``failed``, ``timed_out``,
            ``terminated``, ``canceled``; empty where it has forgotten the run.
        failure: Why, where it did not do its work.
    """

    at: Millis
    workflow_id: str = ""
    run_id: str = ""
    status: str = ""
    failure: str | None = None

    @property
    def is_failed(self) -> bool:
        """Whether it ended without its work done; somebody may have ended it."""
        return self.status in {"failed", "timed_out", "terminated", "canceled"}


class ScheduleFacts(View):
    """A maintenance schedule: its newest runs, newest first, and its next ones.

    Attributes:
        every: Milliseconds between two runs; 0 where that is not known.
        made_at: None where that is not known.
        problem: Why nothing else is known of it: it is not there.
    """

    schedule_id: str
    kind: str
    paused: bool = False
    note: str = ""
    every: Millis = 0
    made_at: Millis | None = None
    running: int = 0
    recent: tuple[ScheduleRun, ...] = ()
    next_at: tuple[Millis, ...] = ()
    problem: str | None = None
