"""The state of one execution of a session, which handlers and the serving loop read and change."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from helix_temporal.errors import HelixError, split_text
from helix_temporal.models.base import only_set
from helix_temporal.models.ids import ASK_AGAIN
from helix_temporal.models.limits import INLINE_RESULT, MAX_ERROR_TEXT
from helix_temporal.models.messages import Usage
from helix_temporal.models.sessions import (
    AskResult,
    AskStatus,
    ExitReason,
    Receipt,
    SessionInfo,
    SessionInput,
    SessionOptions,
    SessionResult,
    Status,
    SuspendedTurn,
)
from helix_temporal.models.states import is_past, session_expired_error
from helix_temporal.models.stored_messages import EMPTY, Head
from helix_temporal.models.waiting import PendingCall
from helix_temporal.session.inbox import Entry, Inbox
from helix_temporal.session.next_work import Situation, Work, may_end, next_work
from helix_temporal.session.pending_calls import PendingCalls
from helix_temporal.session.rewinds import Rewinds
from helix_temporal.telemetry.metrics import MESSAGES_LOST
from helix_temporal.workflows.clock import now_ms
from helix_temporal.workflows.opening import CurrentThread
from helix_temporal.workflows.turn import Turn, TurnResult

NOTES: Final = 20
"""Notes that an execution keeps, the newest: on the session store, and of messages that were refused."""
_NAMED: Final = 1000
"""Messages that a receipt names: the result of an execution has 2 MB at most."""


@dataclass(slots=True)
class Execution:
    """The state of one execution.

    Attributes:
        thread: The open thread; None until it is open.
        turn, turn_task: The turn under way.
        turn_start: Where the newest turn began.
        closing: The execution ends or moves: handlers return at once.
        finalised: Everything is saved, archived and dropped; nothing is left to finalise.
        cancelled: A cancel was asked for, and remembered while it had to wait.
        askers: Updates that wait for what becomes of a message.
        aborting: The turn's task was cancelled by ``stop``, not by the workflow's cancel.
        idle: Nobody sent anything for the idle time-out.
        close: End once nothing waits.
        interrupted: A parent asked to end after the present step before there was a turn.
        used: What the execution used, in turns that came to nothing as well.
        pending_calls: What the turn waits for that is suspended.
        options: How the session behaves: as it was started until it is open, then as it remembers.
        stopping: Somebody stops the suspended turn.
        expires_at: When the session expires, as far as this execution knows.
        lost: Receipts of lost messages that nobody who asked was told yet.
        failed_turn_stands: The turn that failed is in the thread, and was not archived in time.
        seed: Of its random numbers when it began, and when it last had nothing to do: a reset gives it
            another one.
    """

    inbox: Inbox
    quiet_since: datetime
    pending_calls: PendingCalls
    seed: int
    options: SessionOptions = field(default_factory=SessionOptions)
    stopping: Literal["interrupt", "abort"] | None = None
    close: bool = False
    thread: CurrentThread | None = None
    turn: Turn | None = None
    turn_start: Head = EMPTY
    turn_task: "asyncio.Task[TurnResult | None] | None" = None
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
    failed_turn_stands: bool = False

    def __post_init__(self) -> None:
        self.rewinds = Rewinds(self.inbox)

    @staticmethod
    def of(input: SessionInput, now: datetime, seed: int) -> "Execution":
        """The state at the start of an execution."""
        carried = input.carried
        inbox = Inbox(carried.inbox, carried.answered, carried.asked) if carried else Inbox(input.messages)
        unopened = input.unopened
        if unopened is not None:
            inbox = Inbox(input.messages, asked=unopened.asked)
        receipts, unsaved = (carried.answered_calls, carried.unsaved_answers) if carried else ((), ())
        pending_calls = PendingCalls(now_ms, receipts, unsaved)
        before = carried or unopened
        for each in before.early_answers if before else ():
            pending_calls.receive_answer(each)
        execution = Execution(inbox, now, pending_calls, seed, input.options)
        if unopened is not None:
            execution.close, execution.interrupted = unopened.close, unopened.interrupted
        if carried is not None:
            execution.close, inbox.last_result, execution.used = (
                carried.close,
                carried.last_result,
                carried.used or Usage(),
            )
            execution.stopping, execution.expires_at = carried.stopping, carried.expires_at
        pending_calls.on_step_waits, pending_calls.on_child_waits = (
            execution.tell_suspended,
            execution.tell_suspended_below,
        )
        pending_calls.on_found_answered = inbox.link_calls
        return execution

    def record_end(self, reason: ExitReason, status: Status) -> None:
        """Record how the execution ends."""
        self.exit, self.status = reason, status

    @property
    def opened_thread(self) -> CurrentThread:
        """The open thread."""
        assert self.thread is not None
        return self.thread

    @property
    def situation(self) -> Situation:
        """All that decides what to do next."""
        return Situation(
            rewind=self.rewinds.due or (self.is_suspended and bool(self.rewinds)),
            suspended=self.is_suspended,
            can_resume=self.is_suspended and self._can_resume(),
            messages=bool(self.inbox),
            archive_behind=self.inbox.waits_for_archive,
            exits=self.exits_while_waiting,
            ends=self.close or self.idle,
            persistent=self.options.persistent,
        )

    @property
    def next_work(self) -> Work:
        """What to do next, while no turn runs."""
        return next_work(self.situation)

    @property
    def may_end(self) -> bool:
        """Nothing that came meanwhile holds an execution that has nothing to do."""
        return may_end(self.situation)

    @property
    def is_reset(self) -> bool:
        """The execution was reset, and neither opened its thread since nor came to rest.

        The server applies again what came before.
        """
        opened = None if self.thread is None else self.thread.seed_before
        return workflow.random_seed() not in {self.seed, opened}

    def _can_resume(self) -> bool:
        wanted = self.stopping or self.reason_to_give_up or self.pending_calls.ready
        return bool(wanted or self.opened_thread.opened_by_another_run)

    def check_not_expired(self, session_id: str) -> None:
        """Refuse whoever wants something new of a session that has expired.

        Raises:
            ApplicationError: A `SessionExpiredError`, as an update tells it.
        """
        if is_past(self.expires_at, now_ms()):
            raise update_refusal(session_expired_error(session_id, self.expires_at))

    def refuse_if_closing(self) -> None:
        """Refuse an update once the execution ends: the next one carries it out.

        Raises:
            ApplicationError: As `build_refusal`.
        """
        if self.closing:
            raise self.build_refusal()

    def build_refusal(self) -> ApplicationError:
        """The error for an update that this execution does not carry out any more: the client sends it again.

        If the session could not be opened, the error is that failure: a second try would fail, too.
        """
        if self.thread is None and self.exit is ExitReason.FAILED:
            kind, why = split_text(self.error or "")
            return ApplicationError(why, type=kind, non_retryable=True)
        return ask_again()

    async def watch_idle(self) -> None:
        """Set ``idle`` when nobody has sent anything for the idle time-out.

        It is one timer, set again for the time that is left: a time-out on each wait would cost two events
        a turn.
        """
        limit = timedelta(seconds=self.options.idle_timeout)
        while True:
            if self.pending_calls.suspended is not None:
                await workflow.wait_condition(lambda: self.pending_calls.suspended is None)
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
        return self.pending_calls.suspended is not None and self.turn is None

    @property
    def waits_for_people(self) -> bool:
        """There is a call that somebody has to answer; a turn that was found may have none left."""
        return self.is_suspended and bool(self.pending_calls.list_pending())

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
    def reason_to_give_up(self) -> ExitReason | None:
        """Why the suspended turn is to end without its answers."""
        if self.stopping == "interrupt":
            return ExitReason.INTERRUPTED
        return ExitReason.SUPERSEDED if self.supersedes and self.inbox else None

    def tell_suspended(self) -> None:
        """The turn waits: tell whoever asked what for, unless all that it waits for is answered already."""
        self.inbox.link_calls(
            (*self.pending_calls.list_call_ids(), *(each.id for each in self._pending_below()))
        )
        if not self.pending_calls.list_pending():
            return
        self.status = Status.SUSPENDED
        self.inbox.suspend_turn(self.build_suspended_result(in_thread=True))
        if self.exits_while_waiting and not self.supersedes:
            self.inbox.turn_away(self.build_suspended_result(in_thread=False))

    def tell_askers_if_exiting(self) -> None:
        """Answer those who asked since the turn began to wait, if the execution does not wait with it."""
        if self.is_suspended and self.exits_while_waiting:
            self.tell_suspended()

    def build_suspended_result(self, *, in_thread: bool) -> AskResult:
        """The result for those who ask while the turn waits for people."""
        fields: dict[str, Any] = {"in_thread": True} if in_thread else {}
        result = AskResult(
            status=AskStatus.SUSPENDED,
            exit_reason=ExitReason.SUSPENDED,
            pending=self.pending_calls.list_pending(),
            **fields,
        )
        return self._with_archived(result)

    # -- what the stores hold

    def finish_result(self, result: AskResult, *, tells: bool = True) -> AskResult:
        """The result with what is known of the archive, and, if it ``tells`` anybody, of what is lost."""
        result = self._with_archived(result)
        if not tells:
            return result
        lost, self.lost = self.lost, ()
        return result.model_copy(update={"receipts": lost}) if lost else result

    def _with_archived(self, result: AskResult) -> AskResult:
        if self.thread is None or not (result.in_thread and self.thread.archives):
            return result
        return result.model_copy(update={"archived": self.thread.handle.archived})

    def wait_for_archive(self, told: AskResult) -> None:
        """Hold messages until the archive has caught up; open asks get ``told``."""
        self.inbox.wait_for_archive(told)
        self.opened_thread.handle = self.opened_thread.handle.model_copy(update={"archived": False})

    def note_refused(self, entries: Sequence[Entry], why: str) -> None:
        """Note messages that were refused: nobody waits for those that were sent, so a receipt names them."""
        sent = self.list_sent_ids(entries)
        if sent:
            what = f"refused ({why}), no turn for"
            receipt = without_turn(self.opened_thread.request.session_id, what, sent)
            self.notes = (*self.notes, receipt)[-NOTES:]

    def note_refused_values(self, why: Mapping[str, str]) -> None:
        """Note values of the application that cannot be saved; what was saved of them last stays."""
        told = "; ".join(f"{key}: {reason}" for key, reason in why.items())[:MAX_ERROR_TEXT]
        receipt = Receipt(name="values", ok=False, detail=f"not saved: {told}")
        if why and receipt not in self.notes:
            workflow.logger.warning("values of the session are not saved: %s", told)
            self.notes = (*self.notes, receipt)[-NOTES:]

    def list_sent_ids(self, entries: Sequence[Entry]) -> list[str]:
        """Ids of messages that nobody waits for; none in a session for one task, whose result says it."""
        return [each.message.id for each in entries if not each.asked] if self.options.persistent else []

    def keep_unarchived(self, *, committed: bool) -> None:
        """Note that the turn failed since its newest step, in the thread, was not archived in time."""
        self.failed_turn_stands = committed
        self.opened_thread.handle = self.opened_thread.handle.model_copy(update={"archived": False})

    def note_losses(self) -> None:
        """Report messages that an open has found to be lost; they may be asked again."""
        losses, self.opened_thread.losses = self.opened_thread.losses, ()
        for loss in losses:
            receipt = loss.build_receipt()
            self.notes = (*self.notes, receipt)[-NOTES:]
            self.lost = (*self.lost, receipt)[-NOTES:]
            self.inbox.forget_answers_after(loss.start)
            thread_id = self.opened_thread.request.thread_id
            workflow.logger.error("thread %s: acknowledged messages are %s", thread_id, receipt.detail)
            # The one metric of workflow code: what an open may have lost, its workflow alone knows.  The
            # SDK's meter records nothing in a replay.
            counter = workflow.metric_meter().create_counter(MESSAGES_LOST.name, MESSAGES_LOST.description)
            counter.add(loss.stop - loss.start)

    def _pending_below(self) -> tuple[PendingCall, ...]:
        return self.pending_calls.sub_agent_calls.list_pending()

    @property
    def waits_below(self) -> bool:
        """Sub-agents of the turn under way wait for answers."""
        return self.turn is not None and bool(self._pending_below())

    def tell_suspended_below(self) -> None:
        """Tell whoever asked that a sub-agent waits, and for what."""
        if self.turn is not None:
            self.inbox.link_calls(each.id for each in self._pending_below())
            self.inbox.suspend_turn(self.build_suspended_result(in_thread=True))

    def restore_turn(self, turn: SuspendedTurn) -> None:
        """Take over a turn that an earlier execution has left suspended."""
        self.inbox.adopt_messages(turn.messages)
        self.turn_start = turn.start
        self.pending_calls.sub_agent_calls.in_order = not self.opened_thread.facts.parallel_tools
        self.pending_calls.begin_wait(turn)
        self.pending_calls.expire_calls()

    def drop_suspended(self) -> None:
        """End the suspended turn, which was cut out of the thread."""
        if self.pending_calls.suspended is not None:
            self.pending_calls.end_wait()
            self.status = Status.IDLE
            self.inbox.finish_turn(
                AskResult(status=AskStatus.INTERRUPTED, exit_reason=ExitReason.INTERRUPTED)
            )

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
        """The result of the execution."""
        result = self.build_suspended_result(in_thread=True) if self.is_suspended else self.inbox.last_result
        if result is not None and len((result.text or "").encode(errors="surrogatepass")) > INLINE_RESULT:
            result = result.model_copy(update={"text": None})
        alone: dict[str, Any] = {} if self.options.persistent else {"last_result": result, "used": self.used}
        due = self.pending_calls.sub_agent_calls.find_due_time() if alone and self.is_suspended else None
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
        """The answer to the query ``status``."""
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
            pending=self.pending_calls.list_pending(),
            options=self.options,
            **further,
        )


def without_turn(session_id: str, what: str, sent: Sequence[str]) -> Receipt:
    """The receipt for messages that were sent and have no turn: whoever reads it may send them again."""
    what = f"{what} {len(sent)}: "
    workflow.logger.warning("session %s: messages that were sent: %s%s", session_id, what, ", ".join(sent))
    more = [f"and {len(sent) - _NAMED} more, which the log names"] if len(sent) > _NAMED else []
    return Receipt(name="sent", ok=False, detail=what + ", ".join([*sent[:_NAMED], *more]))


def ask_again() -> ApplicationError:
    """Refuses an update that is to be sent again, as `SessionClient` does by itself."""
    return ApplicationError(
        "this execution ends, or lets those go who wait: send the update again, under another update id",
        type=ASK_AGAIN,
        non_retryable=True,
    )


def update_refusal(error: HelixError) -> ApplicationError:
    """The error as an update's handler raises it: whoever sent the update gets its type and message."""
    return ApplicationError(str(error), type=type(error).__name__, non_retryable=True)
