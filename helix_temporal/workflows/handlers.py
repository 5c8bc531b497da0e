"""Updates, signals and queries of a session, and the state of one execution that they read and change.

`SessionRun` is that state; `Handlers` registers and answers; `Stops` ends turns and executions;
`Submissions` takes answers to calls that wait; `Rewinds` queues requests to take turns back.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from helix_temporal.errors import (
    AgentMismatchError,
    HeadMovedError,
    HelixError,
    InvalidRequestError,
    ThreadNotFoundError,
    split_text,
)
from helix_temporal.models.base import canonical_json, check_json, check_text, only_set
from helix_temporal.models.handles import (
    PlanTakeBackInput,
    PlanTakeBackResult,
    TakeBackRequest,
    TakeBackResult,
)
from helix_temporal.models.messages import Usage, check_size
from helix_temporal.models.records import EMPTY, Head
from helix_temporal.models.sessions import (
    AnswerRef,
    AskResult,
    AskStatus,
    ExitReason,
    Receipt,
    ReopenHeads,
    RewindResult,
    SendResult,
    SessionInfo,
    SessionInput,
    SessionOptions,
    SessionResult,
    SetPropertiesInput,
    Status,
    StopRequest,
    StopResult,
    SubmitReply,
    SuspendedTurn,
    UserMessage,
)
from helix_temporal.models.states import (
    MAX_ERROR_TEXT,
    SessionProperties,
    Submission,
    check_thread,
    is_past,
    session_expired_error,
)
from helix_temporal.models.steps import OpenSessionResult
from helix_temporal.models.waiting import (
    MAX_INLINE_TEXT,
    RESUME,
    PayloadRef,
    PendingCall,
    SubmitInput,
    TakenAnswer,
    Wake,
    check_outcome,
    is_message_ref,
)
from helix_temporal.session.inbox import Entry, Inbox, TurnOutcome
from helix_temporal.session.waiting import PendingCalls
from helix_temporal.workflows.calls import TemporalCalls
from helix_temporal.workflows.clock import now_ms
from helix_temporal.workflows.ending import describe_failure
from helix_temporal.workflows.opening import (
    CurrentThread,
    open_conversation,
    remembered_if_unclear,
    reopen_thread,
)
from helix_temporal.workflows.subagents import SubAgents
from helix_temporal.workflows.turn import Turn, TurnResult


@dataclass(slots=True)
class PendingRewind:
    """A rewind that waits for the end of the turn.

    Attributes:
        before: Messages that waited when it came: their turn is first.
    """

    request: TakeBackRequest
    before: frozenset[str] = frozenset()
    result: RewindResult | None = None


class Rewinds:
    """Requests to take turns back that have no result yet."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._pending: list[PendingRewind] = []

    def __bool__(self) -> bool:
        return bool(self._pending)

    async def wait_for(self, request: TakeBackRequest) -> RewindResult:
        """The result of this request; sent again under its id it is the same request."""
        rewind = next((each for each in self._pending if each.request.id == request.id), None)
        if rewind is None:
            rewind = PendingRewind(request, frozenset(self._inbox.waiting))
            self._pending.append(rewind)
        await workflow.wait_condition(lambda: rewind.result is not None)
        assert rewind.result is not None
        return rewind.result

    @property
    def due(self) -> bool:
        """The oldest may be carried out: no message that came before it waits."""
        return bool(self._pending) and self.next.before.isdisjoint(self._inbox.waiting)

    @property
    def before(self) -> frozenset[str] | None:
        """Messages whose turn is before the oldest one; None if there is none."""
        return self.next.before if self._pending else None

    @property
    def next(self) -> PendingRewind:
        """The oldest; it stays here until it has its result: whoever ends the run meanwhile refuses it."""
        return self._pending[0]

    def done(self, rewind: PendingRewind) -> None:
        """It has its result."""
        self._pending.remove(rewind)

    def refuse(self) -> None:
        """The run ends: ask again elsewhere."""
        for rewind in self._pending:
            rewind.result = RewindResult(done=False)


async def carry_out(
    calls: TemporalCalls, thread: CurrentThread, inbox: Inbox, rewind: PendingRewind
) -> OpenSessionResult | None:
    """Cut the thread as asked, and let what is asked anew wait for the next turn.

    Returns:
        The session as it is open now; None if nothing was changed.
    """
    reopened = None
    try:
        try:
            plan = await _plan_take_back(calls, thread, rewind.request)
        except HeadMovedError:
            if rewind.request.checkpoint is not None:
                raise
            # An older copy of the thread: turns that are counted on it would be others than those asked for.
            stood, reopened = thread.head, await reopen_thread(calls, thread, _as_it_stands(thread))
            inbox.put_first(reopened.under_way)
            if thread.head.position < stood.position:
                raise
            plan = await _plan_take_back(calls, thread, rewind.request)
        opened = await _cut_thread(calls, thread, rewind.request, plan) if plan.cuts else None
    except (HelixError, ActivityError) as error:
        rewind.result = RewindResult(done=False, head=thread.head, error=describe_failure(error))
        return reopened
    messages = _requeue_messages(inbox, plan, cut=None if opened is None else opened.handle.head)
    if opened is not None:
        inbox.put_first(opened.under_way)
    told: dict[str, Any] = {"messages": messages} if messages else {}
    rewind.result = TakeBackResult(done=True, head=plan.head, **told)
    return opened or reopened


def _as_it_stands(thread: CurrentThread) -> ReopenHeads:
    return ReopenHeads(known=thread.head, turn_start=thread.head)


@dataclass(frozen=True, slots=True)
class _Plan:
    found: PlanTakeBackResult
    tried: bool

    @property
    def cuts(self) -> bool:
        """Also where the open that did it failed: the epoch that it took is not known."""
        return self.tried or not self.found.done

    @property
    def head(self) -> Head:
        """What was answered, or would have been, when it was carried out; else where it is cut."""
        return self.found.record.to if self.found.done else self.found.to


async def _plan_take_back(calls: TemporalCalls, thread: CurrentThread, request: TakeBackRequest) -> _Plan:
    wanted = PlanTakeBackInput(
        session_id=thread.request.session_id,
        thread_id=thread.request.thread_id,
        request=request,
        known=thread.head,
    )
    return _Plan(await calls.plan_take_back(wanted), request.id in thread.tried)


async def _cut_thread(
    calls: TemporalCalls, thread: CurrentThread, request: TakeBackRequest, plan: _Plan
) -> OpenSessionResult:
    changes: dict[str, Any] = {"mode": "continue", "rewind_to": plan.found.to, "fork_from": None}
    changes |= {"take_back": plan.found.record, "known_epoch": thread.handle.epoch}
    if request.checkpoint is not None:
        changes["checkpoint"] = request.checkpoint
    if thread.tried:
        changes["tried"] = thread.tried
    # Whether or not it took effect: where the thread stands then, it is opened again.
    heads, epoch, seed = _as_it_stands(thread), thread.handle.epoch, thread.seed()
    try:
        with remembered_if_unclear(thread, heads):
            opened = await open_conversation(calls, thread.request.model_copy(update=changes))
    except (HelixError, ActivityError):
        if request.id not in thread.tried:
            thread.tried = (*thread.tried, request.id)
        raise
    thread.opened(opened.handle, seed)
    if opened.reset:
        thread.went_on(plan.found.to.position, epoch)
    return opened


def _requeue_messages(inbox: Inbox, plan: _Plan, *, cut: Head | None) -> tuple[UserMessage, ...]:
    """Together they become one turn; who asks for one of them gets that turn's answer."""
    if cut is not None:
        inbox.forget_after(cut.position)
    messages = plan.found.record.messages
    inbox.put_first([each for each in messages if inbox.answered(each.id) is None])
    return messages


LOST: Final = "helix_messages_lost"
NOTES: Final = 20
"""Notes that an execution keeps, the newest: on the session store, and of messages that were refused."""
_NAMED: Final = 1000
"""Messages that a receipt names: the result of an execution has 2 MB at most."""
MAX_TEXT_BYTES: Final = 256 * 1024
"""A user's text in an update; longer ones are put aside by the client and sent by reference."""


@dataclass(slots=True)
class SessionRun:
    """The state of one execution.

    Attributes:
        thread: The open thread; None until it is open.
        turn, turn_task: The turn under way.
        turn_start: Where the newest turn began.
        closing: The run ends or moves: handlers return at once.
        finalised: Everything is saved, archived and dropped; nothing is left to finalise.
        cancelled: A cancel was asked for, and remembered while it had to wait.
        askers: Updates that wait for what becomes of a message.
        aborting: The turn's task was cancelled by ``stop``, not by the workflow's cancel.
        idle: Nobody sent anything for the idle time-out.
        close: End once nothing waits.
        interrupted: A parent asked to end after the present step before there was a turn.
        used: What the execution used, in turns that came to nothing as well.
        waits: What the turn waits for that is suspended.
        options: How the session behaves: as it was started until it is open, then as it remembers.
        stopping: Somebody stops the suspended turn.
        expires_at: When the session expires, as far as this execution knows.
        lost: Receipts of lost messages that nobody who asked was told yet.
        kept: The turn that failed is in the thread, and was not archived in time.
    """

    inbox: Inbox
    quiet_since: datetime
    waits: PendingCalls
    options: SessionOptions = field(default_factory=SessionOptions)
    stopping: Literal["interrupt", "abort"] | None = None
    close: bool = False
    thread: CurrentThread | None = None
    turn: Turn | None = None
    turn_start: Head = EMPTY
    turn_task: "asyncio.Task[TurnResult] | None" = None
    status: Status = Status.OPENING
    exit: ExitReason = ExitReason.COMPLETED
    turns: int = 0
    run_turns: int = 0
    usage: Usage = field(default_factory=Usage)
    receipts: tuple[Receipt, ...] = ()
    notes: tuple[Receipt, ...] = ()
    error: str | None = None
    closing: bool = False
    finalised: bool = False
    cancelled: bool = False
    askers: int = 0
    aborting: bool = False
    idle: bool = False
    rewinds: Rewinds = field(init=False)
    interrupted: bool = False
    used: Usage = field(default_factory=Usage)
    expires_at: int | None = None
    lost: tuple[Receipt, ...] = ()
    kept: bool = False

    def __post_init__(self) -> None:
        self.rewinds = Rewinds(self.inbox)

    @staticmethod
    def of(input: SessionInput, now: datetime) -> "SessionRun":
        """The state at the start of a run."""
        carried = input.carried
        inbox = Inbox(carried.inbox, carried.answered, carried.asked) if carried else Inbox(input.messages)
        known, unsaved = (carried.answered_calls, carried.unsaved_answers) if carried else ((), ())
        waits = PendingCalls(now_ms, known, unsaved)
        live = SessionRun(inbox, now, waits, input.options)
        if carried is not None:
            live.close, inbox.told, live.used = carried.close, carried.told, carried.used or Usage()
            live.stopping, live.expires_at = carried.stopping, carried.expires_at
        waits.on_wait, waits.on_wait_below = live.tell_suspended, live.tell_suspended_below
        waits.on_known = inbox.waits_for
        return live

    def end(self, reason: ExitReason, status: Status) -> None:
        """How the execution ends."""
        self.exit, self.status = reason, status

    @property
    def open(self) -> CurrentThread:
        """The open thread."""
        assert self.thread is not None
        return self.thread

    @property
    def has_messages(self) -> bool:
        """Somebody wants something of the session."""
        if self.is_suspended:
            wanted = self.rewinds or self.stopping or self.reason_to_give_up or self.waits.ready
            return bool(wanted or self.open.opened_by_another_run)
        return bool(self.inbox or self.rewinds) and (not self.inbox.held or self.rewinds.due)

    @property
    def has_work(self) -> bool:
        """Something is to be done, be it only to end."""
        closes = self.close and not self.must_stay_open
        ends = closes or (self.idle and not self.is_suspended)
        return self.has_messages or (ends and not self.inbox.held)

    def check_not_expired(self, session_id: str) -> None:
        """Refuse whoever wants something new of a session that has expired.

        Raises:
            ApplicationError: A `SessionExpiredError`, as an update tells it.
        """
        if is_past(self.expires_at, now_ms()):
            raise update_refusal(session_expired_error(session_id, self.expires_at))

    def refuse_unopened(self) -> None:
        """Tell whoever comes again why the session could not even be opened.

        Raises:
            ApplicationError: With the type of that failure.
        """
        if self.unopened is not None:
            kind, why = split_text(self.unopened)
            raise ApplicationError(why, type=kind, non_retryable=True)

    @property
    def unopened(self) -> str | None:
        """Why the session could not even be opened: it would fail again for those who come again."""
        return self.error if self.thread is None and self.exit is ExitReason.FAILED else None

    async def watch_idle(self) -> None:
        """One timer, set again for what is left: a time-out on each wait would cost two events a turn."""
        limit = timedelta(seconds=self.options.idle_timeout)
        while True:
            if self.waits.turn is not None:
                await workflow.wait_condition(lambda: self.waits.turn is None)
            left = limit if self.turn is not None else self.quiet_since + limit - workflow.now()
            if left <= timedelta(0):
                self.idle = True
                await workflow.wait_condition(lambda: not self.idle)
            else:
                await asyncio.sleep(left.total_seconds())

    # -- suspended

    @property
    def is_suspended(self) -> bool:
        """A turn waits for answers, and does nothing meanwhile."""
        return self.waits.turn is not None and self.turn is None

    @property
    def holds_askers(self) -> bool:
        """Somebody's update is open for as long as the turn waits for people."""
        return self.is_suspended and self.askers > 0

    @property
    def exits_while_waiting(self) -> bool:
        """The execution does not wait for people."""
        return self.options.suspend == "exit" or self.close

    @property
    def supersedes(self) -> bool:
        """A message ends a suspended turn."""
        return self.options.while_suspended == "supersede"

    @property
    def must_stay_open(self) -> bool:
        """The execution waits: it may not end, or would lose messages that were accepted."""
        return self.is_suspended and (not self.exits_while_waiting or bool(self.inbox))

    @property
    def may_end(self) -> bool:
        """Nothing that came meanwhile holds an execution that has nothing to do."""
        return not (self.has_messages or self.must_stay_open or self.inbox.held)

    def waits_when_idle(self, *, persistent: bool) -> bool:
        """Without anything to do the execution waits; otherwise it ends."""
        return self.must_stay_open if self.is_suspended else persistent or self.inbox.held

    @property
    def reason_to_give_up(self) -> ExitReason | None:
        """Why the suspended turn is to end without its answers."""
        if self.stopping == "interrupt":
            return ExitReason.INTERRUPTED
        return ExitReason.SUPERSEDED if self.supersedes and self.inbox else None

    def tell_suspended(self) -> None:
        """The turn waits: whoever asked is told what for."""
        self.status = Status.SUSPENDED
        self.inbox.waits_for((*self.waits.calls(), *(each.id for each in self._pending_below())))
        self.inbox.suspend(self.suspended(in_thread=True))
        if self.exits_while_waiting and not self.supersedes:
            self.inbox.turn_away(self.suspended(in_thread=False))

    def tell_askers_if_exiting(self) -> None:
        """The execution need not wait with the turn: nor do those who have asked since it began to wait."""
        if self.is_suspended and self.exits_while_waiting:
            self.tell_suspended()

    def suspended(self, *, in_thread: bool) -> AskResult:
        """What those are told who ask meanwhile."""
        fields: dict[str, Any] = {"in_thread": True} if in_thread else {}
        result = AskResult(
            status=AskStatus.SUSPENDED,
            exit_reason=ExitReason.SUSPENDED,
            pending=self.waits.pending(),
            **fields,
        )
        return self._with_archived(result)

    # -- what the stores hold

    def finish_result(self, result: AskResult) -> AskResult:
        """The result with what is known of the archive, and of messages that are lost."""
        lost, self.lost = self.lost, ()
        result = self._with_archived(result)
        return result.model_copy(update={"receipts": lost}) if lost else result

    def _with_archived(self, result: AskResult) -> AskResult:
        if self.thread is None or not (result.in_thread and self.thread.archives):
            return result
        return result.model_copy(update={"archived": self.thread.handle.archived})

    def wait_for_archive(self, told: AskResult) -> None:
        """The archive is too far behind for a turn: what was sent waits until it is not."""
        self.inbox.hold(told)
        self.open.handle = self.open.handle.model_copy(update={"archived": False})

    def note_refused(self, entries: Sequence[Entry], why: str) -> None:
        """Messages that enter no thread: of those that were sent nobody else is told."""
        sent = self.list_sent_ids(entries)
        if sent:
            what = f"refused ({why}), no turn for"
            receipt = without_turn(self.open.request.session_id, what, sent)
            self.notes = (*self.notes, receipt)[-NOTES:]

    def list_sent_ids(self, entries: Sequence[Entry]) -> list[str]:
        """Ids of those that nobody waits for; of a session that serves one task, its result tells."""
        return [each.message.id for each in entries if not each.asked] if self.options.persistent else []

    def keep_unarchived(self, *, committed: bool) -> None:
        """The turn failed because its newest step, which is in the thread, was not archived in time."""
        self.failed_turn_stands = committed
        self.open.handle = self.open.handle.model_copy(update={"archived": False})

    def note_losses(self) -> None:
        """Tell of messages that an open has found to be gone; who asks for one of them is answered anew."""
        losses, self.open.losses = self.open.losses, ()
        for loss in losses:
            receipt = loss.receipt()
            self.notes, self.lost = (*self.notes, receipt), (*self.lost, receipt)
            self.inbox.forget_after(loss.start)
            thread_id = self.open.request.thread_id
            workflow.logger.error("thread %s: acknowledged messages are lost: %s", thread_id, receipt.detail)
            workflow.metric_meter().create_counter(LOST, "Acknowledged messages that are lost.").add(
                loss.stop - loss.start
            )

    def _pending_below(self) -> tuple[PendingCall, ...]:
        return self.waits.suspended_calls.pending()

    @property
    def waits_below(self) -> bool:
        """Sub-agents of the turn under way wait for answers."""
        return self.turn is not None and bool(self._pending_below())

    def tell_suspended_below(self) -> None:
        """A sub-agent waits: whoever asked is told what for."""
        if self.turn is not None:
            self.inbox.waits_for(each.id for each in self._pending_below())
            self.inbox.suspend(self.suspended(in_thread=True))

    def take_up(self, turn: SuspendedTurn) -> None:
        """Go on where another execution was suspended."""
        self.inbox.adopt(turn.messages)
        self.turn_start = turn.start
        self.waits.suspended_calls.in_order = not self.open.facts.parallel_tools
        self.waits.begin(turn)
        self.waits.expire()

    def drop_suspended(self) -> None:
        """The turn that was suspended is gone."""
        if self.waits.turn is not None:
            self.waits.end()
            self.status = Status.IDLE
            self.inbox.finish(AskResult(status=AskStatus.INTERRUPTED, exit_reason=ExitReason.INTERRUPTED))

    def thread_of(self, input: SessionInput) -> str:
        """The session's thread, as far as this execution knows."""
        return input.thread if self.thread is None else self.thread.request.thread_id

    def with_place(self, result: AskResult, input: SessionInput) -> AskResult:
        """The result with where its answer is read, if that is too long to travel."""
        thread_id = self.thread_of(input)
        if result.answer is None or result.text is not None or thread_id == input.session_id:
            return result
        return result.model_copy(update={"thread_id": thread_id})

    def result_of(self, input: SessionInput) -> SessionResult:
        """What the execution gives."""
        told = self.suspended(in_thread=True) if self.is_suspended else self.inbox.told
        if told is not None and len((told.text or "").encode(errors="surrogatepass")) > MAX_INLINE_TEXT:
            told = told.model_copy(update={"text": None})
        alone: dict[str, Any] = {} if self.options.persistent else {"told": told, "used": self.used}
        due = self.waits.suspended_calls.due() if alone and self.is_suspended else None
        alone |= only_set(due=due)
        return SessionResult(
            session_id=input.session_id,
            thread_id=self.thread_of(input),
            exit_reason=self.exit,
            status=self.status,
            head=self.thread.head if self.thread else EMPTY,
            turns=self.turns,
            usage=self.usage,
            receipts=self.receipts,
            error=self.error,
            **alone,
        )

    def status_of(self, input: SessionInput) -> SessionInfo:
        """What the query answers."""
        thread = self.thread
        further: dict[str, Any] = {"lag": thread.lag} if thread and thread.lag else {}
        if input.parent is not None:
            further["root_session_id"] = input.parent.root_session_id
        return SessionInfo(
            session_id=input.session_id,
            thread_id=self.thread_of(input),
            status=Status.SUSPENDED if self.waits_below else self.status,
            agent=input.agent,
            turns=self.turns,
            waiting=len(self.inbox),
            head=thread.head if thread else EMPTY,
            epoch=thread.handle.epoch if thread else 0,
            archived=thread.handle.archived if thread else True,
            usage=self.usage,
            exit_reason=self.exit if self.closing or self.finalised else None,
            receipts=self.receipts if self.closing or self.finalised else self.notes,
            error=self.error,
            version=int(workflow.now().timestamp() * 1_000_000),
            run_id=self.turn.run_id if self.turn else None,
            repairs=thread.repairs if thread else 0,
            pending=self.waits.pending(),
            options=self.options,
            **further,
        )


def without_turn(session_id: str, what: str, sent: Sequence[str]) -> Receipt:
    """Messages that were sent, and have no turn: whoever reads that may send them again."""
    what = f"{what} {len(sent)}: "
    workflow.logger.warning("session %s: messages that were sent: %s%s", session_id, what, ", ".join(sent))
    more = [f"and {len(sent) - _NAMED} more, which the log names"] if len(sent) > _NAMED else []
    return Receipt(name="sent", ok=False, detail=what + ", ".join([*sent[:_NAMED], *more]))


def update_refusal(error: HelixError) -> ApplicationError:
    """The error as an update's handler raises it: whoever sent the update gets its type and message."""
    return ApplicationError(str(error), type=type(error).__name__, non_retryable=True)


def accept_update(*_: object) -> None:
    """Accept all: interceptors, which refuse other deployments, are asked only where there is a validator."""


class Handlers:
    """Updates and the query of a session; registered before its ``run`` begins."""

    def __init__(
        self,
        input: SessionInput,
        live: SessionRun,
        calls: TemporalCalls,
        supersede_below: Callable[[], Awaitable[None]],
    ) -> None:
        self._input, self._live, self._calls = input, live, calls
        self._supersede_below = supersede_below
        self._set_last = (0, 0)
        """Epoch and version of the state that the properties are of."""
        calls.children.suspended = live.waits.suspended_calls

    def register(self) -> None:
        """Make them known to the workflow."""
        workflow.set_update_handler("ask", self._on_ask, validator=self._check_message)
        workflow.set_update_handler("send_message", self._on_send, validator=self._check_message)
        workflow.set_update_handler("close", self._on_close, validator=accept_update)
        workflow.set_update_handler("set_properties", self._on_set_properties, validator=accept_update)
        workflow.set_update_handler("take_back", self._on_take_back, validator=accept_update)
        workflow.set_query_handler("status", self._on_status)

    def _check_message(self, message: UserMessage) -> None:
        check_size(len(message.text.encode(errors="surrogatepass")), MAX_TEXT_BYTES, "text of an update")
        if not message.text and message.ref is None:
            raise InvalidRequestError("text is empty")
        if message.agent not in {None, self._input.agent}:
            raise AgentMismatchError(
                f"session {self._input.session_id!r} runs with agent {self._input.agent!r}, not with "
                f"{message.agent!r}; close it first, then ask again, or leave the agent out"
            )
        if self._live.thread is not None:
            self._check_thread(message)
        check_text(message.text, "text")
        if message.ref is not None and is_message_ref(message.ref):
            raise InvalidRequestError("ref: the name of a payload expected, not that of a message")

    async def _on_ask(self, message: UserMessage) -> AskResult:
        if self._live.closing:
            return AskResult(status=AskStatus.MOVED)
        before = self._live.inbox.answered(message.id)
        if before is not None and (again := await self._load_earlier_answer(message.id, before)) is not None:
            return self._live.with_place(again, self._input)
        known = self._live.inbox.find(message.id)
        if known is None and not await self._admit_message(message):
            return AskResult(status=AskStatus.MOVED)
        if self._live.is_suspended and self._live.exits_while_waiting and not self._live.supersedes:
            return self._live.suspended(in_thread=known is not None and known.taken)
        entry = known or self._live.inbox.put(message.without_properties(), asked=True)
        self._live.inbox.release()
        await self._supersede_below()
        told = entry.told
        self._live.askers += 1
        try:
            await workflow.wait_condition(lambda: entry.result is not None or entry.told is not told)
        finally:
            self._live.askers -= 1
        result = entry.result or entry.told
        assert result is not None
        return self._live.with_place(result, self._input)

    async def _load_earlier_answer(self, message_id: str, answer: AnswerRef) -> AskResult | None:
        """The answer that was given before; None if the stores have lost it."""
        try:
            text = await self._calls.load_answer(self._live.thread_of(self._input), answer)
        except ThreadNotFoundError:
            self._live.inbox.forget(message_id)
            return None
        result = AskResult(status=AskStatus.ANSWERED, in_thread=True, text=text, answer=answer)
        return self._live.finish_result(result)

    async def _on_send(self, message: UserMessage) -> SendResult:
        if self._live.closing:
            return SendResult(accepted=False)
        if self._live.inbox.answered(message.id) is None:
            if self._live.inbox.find(message.id) is None and not await self._admit_message(message):
                return SendResult(accepted=False)
            self._live.inbox.put(message.without_properties())
            await self._supersede_below()
            if self._live.thread is None:
                return SendResult(accepted=await self._is_open())
        return SendResult(accepted=True)

    async def _is_open(self) -> bool:
        """Whether the session could be opened for what came with the start; false where it ended before.

        Raises:
            ApplicationError: It could not, as where it has expired.
        """
        live = self._live
        await workflow.wait_condition(lambda: live.thread is not None or live.closing)
        if live.thread is None:
            live.refuse_unopened()
        return live.thread is not None

    async def _admit_message(self, message: UserMessage) -> bool:
        """Whether a new message may come in, once the properties that it names are set; false: the run ends.

        It may have begun to end since the message came: what came in then would have no turn anywhere.

        Raises:
            ApplicationError: The session has expired, has another thread, or no store for its properties.
        """
        if message.thread_id not in {None, self._input.thread_id} and self._live.thread is None:
            # The session may have another thread than it is opened with, as the open finds.
            if not await self._is_open():
                return False
            try:
                self._check_thread(message)
            except InvalidRequestError as error:
                raise update_refusal(error) from error
        if message.properties is not None and not await self._set_properties(message.properties):
            return False
        self._live.check_not_expired(self._input.session_id)
        return not self._live.closing

    def _check_thread(self, message: UserMessage) -> None:
        if message.thread_id is not None:
            check_thread(self._input.session_id, self._live.thread_of(self._input), message.thread_id)

    async def _set_properties(self, properties: SessionProperties) -> bool:
        """Set properties of the session; false where the run ends, or could not be opened."""
        live, opens = self._live, self._live.thread is None and self._input.carried is None
        if not await self._is_open() or live.closing:
            return False
        if opens and properties == self._input.properties:
            return True  # the open has set them
        request = SetPropertiesInput(
            session_id=self._input.session_id, properties=properties, epoch=live.open.handle.epoch
        )
        try:
            kept = await self._calls.set_properties(request)
        except HelixError as error:
            if self._live.closing:
                return False  # this run's end has shut its epoch; the next run sets them
            raise update_refusal(error) from error
        written = (request.epoch or 0, kept.version)
        if written >= self._set_last:
            # Results of two may come in another order than they were written in.
            self._set_last = written
            live.expires_at, live.open.tracing_context = kept.expires_at, kept.tracing_context
        return True

    async def _on_set_properties(self, properties: SessionProperties) -> bool:
        # The store has them: the next open finds them there, and only a run that goes on as new has none.
        return await self._set_properties(properties) or not self._live.finalised

    async def _on_close(self) -> None:
        self._live.close = True
        self._live.tell_askers_if_exiting()

    async def _on_take_back(self, request: TakeBackRequest) -> RewindResult:
        if not self._live.closing:
            result = await self._live.rewinds.wait_for(request)
            if result.done or self._live.unopened is None:
                return result
        why = only_set(error=self._live.unopened)
        return RewindResult(done=False, **why)

    def _on_status(self) -> SessionInfo:
        info, failing = self._live.status_of(self._input), self._calls.roll_outs.failing
        return info.model_copy(update={"failing": failing}) if failing else info


class Stops:
    """Stops turns of one session, and of those below it."""

    def __init__(self, input: SessionInput, live: SessionRun, calls: TemporalCalls) -> None:
        self._input, self._live, self._calls = input, live, calls

    def register(self) -> None:
        """Make the update and the parent's signal known to the workflow."""
        workflow.set_update_handler("stop", self._on_stop, validator=accept_update)
        workflow.set_signal_handler("interrupt", self._on_interrupt)

    async def supersede_below(self) -> None:
        """A message ends a turn whose sub-agents wait, where the session is set so."""
        if self._live.supersedes and self._live.waits_below and self._live.inbox:
            await self._interrupt_turn()

    async def _interrupt_turn(self) -> None:
        """Let the turn, and those of its sub-agents, end after the present step."""
        if self._live.turn is not None:
            self._live.turn.interrupted = True
            await self._calls.children.interrupt(self._live.turn.run_id)

    async def _on_stop(self, request: StopRequest) -> StopResult:
        if request.suspended:
            await workflow.wait_condition(lambda: self._live.thread is not None or self._live.closing)
            if self._live.thread is None:
                return self._unopened_result()
        if self._live.is_suspended:
            return self._stop_suspended(request)
        if self._live.turn is None or self._live.turn_task is None:
            return StopResult(stopping=False)
        under_way = self._live.turn.run_id
        if not _is_for_turn(request, under_way):
            return StopResult(stopping=False, run_id=under_way)
        if request.mode == "interrupt":
            await self._interrupt_turn()
        else:
            self._live.aborting = True
            self._live.turn_task.cancel()
        return StopResult(stopping=True, run_id=under_way)

    def _stop_suspended(self, request: StopRequest) -> StopResult:
        assert self._live.waits.turn is not None
        under_way = self._live.waits.turn.run_id
        if not _is_for_turn(request, under_way):
            return StopResult(stopping=False, run_id=under_way)
        self._live.stopping = request.mode
        return StopResult(stopping=True, run_id=under_way)

    def _unopened_result(self) -> StopResult:
        why = self._live.unopened
        fields: dict[str, Any] = {"moved": True} if why is None else {"error": why}
        return StopResult(stopping=False, **fields)

    async def _on_interrupt(self) -> None:
        """A parent ends its turn."""
        if self._live.is_suspended:
            self._live.stopping = "interrupt"
            return
        if self._live.turn is None and self._input.parent is not None:
            self._live.interrupted = True
        await self._interrupt_turn()


def _is_for_turn(request: StopRequest, under_way: str | None) -> bool:
    """Whether it is this run's turn that is to be stopped."""
    # A turn that is run again goes by another name; those who stop it know the first one.
    return request.run_id in {None, under_way, (under_way or "").split(".", 1)[0]}


MAX_HELD_BYTES: Final = 1024 * 1024
"""Of results that are not put aside: together they are in the input of one step, which has 2 MB at most."""


class Submissions:
    """Takes answers for one session and those below it; a root's workflow is their only writer.

    The session of a sub-agent has its answers from its caller: with its start, or by a signal while it runs.
    """

    def __init__(self, live: SessionRun, input: SessionInput, now: datetime, children: SubAgents) -> None:
        self._live, self._session_id, self._parent = live, input.session_id, input.parent
        self._began, self._opens, self._children = now, input.carried is None, children

    def register(self) -> None:
        """Make the update, and the caller's signal, known to the workflow."""
        workflow.set_update_handler("submit_tool_result", self._on_submit, validator=self._check_submit)
        workflow.set_signal_handler("take_answer", self._on_take_answer)

    def take_up(self, wake: Wake) -> None:
        """Take what the session was started again with, once it is open."""
        if (wake.ends or self._live.interrupted) and self._live.is_suspended:
            self._live.stopping = "interrupt"
        for each in wake.answers:
            self._live.waits.take_answer(each)

    async def _on_take_answer(self, answer: TakenAnswer) -> None:
        self._live.waits.take_answer(answer)
        await self._children.send_answers()

    def _check_submit(self, request: SubmitInput) -> None:
        if self._parent is not None:
            raise InvalidRequestError(
                f"session {self._session_id!r} is a sub-agent's: its calls are answered at session "
                f"{self._parent.root_session_id!r}"
            )
        self._check_kind(request)
        limit = MAX_TEXT_BYTES if request.outcome == "result" else MAX_ERROR_TEXT
        check_size(
            len(request.text.encode(errors="surrogatepass")), limit, f"text of a tool {request.outcome}"
        )
        check_text(request.text, "text")
        held = self._live.waits.held + len(request.text.encode())
        if request.parts is not None:
            check_json(request.parts, "parts")
            size = len(canonical_json(request.parts))
            check_size(size, MAX_TEXT_BYTES, "parts of a tool's result")
            held += size
        check_size(held, MAX_HELD_BYTES, "results of one step that were not put aside")
        if request.ref is not None and is_message_ref(request.ref):
            raise InvalidRequestError("ref: the name of a payload expected, not that of a message")

    def _check_kind(self, request: SubmitInput) -> None:
        """Refuse an answer that is not of the kind that the call wants, as far as the call is known here.

        Raises:
            InvalidRequestError: It is of another kind.
        """
        kind = self._live.waits.kind_wanted(request.call)
        if kind is not None:
            check_outcome(request.call, kind, request.outcome)

    async def _on_submit(self, request: SubmitInput) -> SubmitReply:
        live, looks = self._live, self._comes_with_start
        await workflow.wait_condition(lambda: live.closing or self._knows_call(request.call))
        if request.call == RESUME and not looks and await self._is_about_to_end(request):
            # It does not look into the session store any more; the next execution does.
            return SubmitReply()
        if live.closing:
            return self._reply_when_closing()
        live.check_not_expired(self._session_id)
        self._refuse_other_kinds(request)
        rounds, turn = live.waits.rounds, self._turn_of(request.call)
        submission = await self._take_answer(request)
        if not request.wait or submission.status != "submitted" or turn is None:
            return SubmitReply(submission=submission)
        await workflow.wait_condition(lambda: turn.result is not None or self._waits_on(rounds))
        result = turn.result or live.suspended(in_thread=True)
        if result.status is AskStatus.MOVED:
            return SubmitReply()
        return SubmitReply(submission=submission, result=result)

    async def _take_answer(self, request: SubmitInput) -> Submission:
        waits = self._live.waits
        if request.call == RESUME:
            waits.suspended_calls.resume_all(TakenAnswer(request=request))
            return Submission(status="not_pending")
        if request.ref is not None and waits.has_below(request.call):
            # It was put aside for this session's thread, and is read by another.
            thread_id = self._live.open.request.thread_id
            request = request.model_copy(
                update={"ref": PayloadRef(thread_id=thread_id, name=request.ref).named()}
            )
        submission = waits.submit(request)
        await self._children.send_answers()
        return submission

    @property
    def _comes_with_start(self) -> bool:
        """Whether the session is opened only after what comes now: it comes in the first activation."""
        return self._opens and workflow.now() == self._began

    async def _is_about_to_end(self, request: SubmitInput) -> bool:
        """Whether the execution ends while its turn waits, once that has nothing else to do."""
        live = self._live
        if not live.exits_while_waiting or live.closing:
            return False
        if live.turn is not None:
            await self._take_answer(request)  # whatever else is at work beside them
        await workflow.wait_condition(lambda: live.closing or live.turn is None)
        return live.is_suspended and not live.must_stay_open

    def _turn_of(self, call: str) -> TurnOutcome | None:
        """Of the turn that waits for the call, or did; None where this execution did not have it."""
        live = self._live
        under_way = live.turn is not None or live.waits.turn is not None
        if under_way and live.waits.has_below(call):
            return live.inbox.turn
        return live.inbox.turn_of(call)

    def _refuse_other_kinds(self, request: SubmitInput) -> None:
        """As the validator, which did not know the calls of a session that was not open yet.

        Raises:
            ApplicationError: An `InvalidRequestError`, as an update tells it.
        """
        try:
            self._check_kind(request)
        except InvalidRequestError as error:
            raise update_refusal(error) from error

    def _reply_when_closing(self) -> SubmitReply:
        why = self._live.unopened
        if why is None:
            return SubmitReply()
        return SubmitReply(result=AskResult(status=AskStatus.FAILED, error=why))

    def _knows_call(self, call: str) -> bool:
        """Whether the call is known, or all that might ask for it has: a reset may have taken us back."""
        live = self._live
        if live.thread is None:
            return False
        if live.waits.knows(call) or live.waits.turn is not None:
            return True
        return live.turn is None and (not live.inbox or live.inbox.held)

    def _waits_on(self, rounds: int) -> bool:
        """The turn under way waits for something else, or still waits for others."""
        live = self._live
        if live.waits.rounds > rounds or live.waits_below:
            return True
        return live.is_suspended and not live.has_messages
