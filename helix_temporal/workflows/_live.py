"""What a running session is, and the handlers by which others see and change it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from temporalio import workflow

from helix_temporal.errors import InvalidRequestError
from helix_temporal.models._json import check_text
from helix_temporal.models.children import MAX_INLINE_TEXT, is_message_ref
from helix_temporal.models.handles import TakeBackRequest
from helix_temporal.models.messages import Usage, check_size
from helix_temporal.models.records import EMPTY, Head
from helix_temporal.models.sessions import (
    AskResult,
    AskStatus,
    ExitReason,
    Receipt,
    RewindRequest,
    RewindResult,
    SendResult,
    SessionInfo,
    SessionInput,
    SessionOptions,
    SessionResult,
    Status,
    SuspendedTurn,
    UserMessage,
)
from helix_temporal.models.suspensions import PendingCall
from helix_temporal.workflows._calls import TemporalCalls
from helix_temporal.workflows._child_waits import ChildWaits, may_sleep
from helix_temporal.workflows._clock import now_ms
from helix_temporal.workflows._conversation import Conversation
from helix_temporal.workflows._inbox import Inbox
from helix_temporal.workflows._rewinds import Rewinds
from helix_temporal.workflows._turns import Turn, TurnResult
from helix_temporal.workflows._waits import Waits

MAX_TEXT_BYTES: Final = 256 * 1024
"""A user's text in an update; longer ones are put aside by the client and sent by reference."""


@dataclass(slots=True)
class Live:
    """The state of one execution.

    Attributes:
        talk: The open thread; None until it is open.
        turn, turn_task: The turn under way.
        turn_start: Where the newest turn began.
        closing: The run ends or moves: handlers return at once.
        rested: Everything is saved, archived and dropped; nothing is left to finalise.
        cancelled: A cancel was asked for, and remembered while it had to wait.
        aborting: The turn's task was cancelled by ``stop``, not by the workflow's cancel.
        idle: Nobody sent anything for the idle time-out.
        close: End once nothing waits.
        interrupted: A parent asked to end after the present step before there was a turn.
        used: What the execution used, in turns that came to nothing as well.
        waits: What the turn waits for that is suspended.
        options: How the session behaves: as it was started until it is open, then as it remembers.
        stopping: Somebody stops the suspended turn.
        below: What sub-agents of the turn under way wait for.
    """

    inbox: Inbox
    quiet_since: datetime
    waits: Waits
    options: SessionOptions = field(default_factory=SessionOptions)
    stopping: Literal["interrupt", "abort"] | None = None
    below: ChildWaits = field(default_factory=ChildWaits)
    close: bool = False
    talk: Conversation | None = None
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
    rested: bool = False
    cancelled: bool = False
    aborting: bool = False
    idle: bool = False
    rewinds: Rewinds = field(init=False)
    interrupted: bool = False
    used: Usage = field(default_factory=Usage)

    def __post_init__(self) -> None:
        self.rewinds = Rewinds(self.inbox)

    @staticmethod
    def of(input: SessionInput, now: datetime) -> "Live":
        """The state at the start of a run."""
        carried = input.carried
        inbox = Inbox(carried.inbox, carried.answered) if carried else Inbox(input.messages)
        known, unsaid = (carried.answered_calls, carried.unsaid) if carried else ((), ())
        waits = Waits(now_ms, known, lambda: may_sleep(live.options.suspend), unsaid)
        live = Live(inbox, now, waits, input.options)
        if carried is not None:
            live.close, inbox.told, live.used = carried.close, carried.told, carried.used or Usage()
            live.stopping = carried.stopping
        waits.on_wait = live.suspends
        return live

    def end(self, reason: ExitReason, status: Status) -> None:
        """How the execution ends."""
        self.exit, self.status = reason, status

    @property
    def open(self) -> Conversation:
        """The open thread."""
        assert self.talk is not None
        return self.talk

    @property
    def has_messages(self) -> bool:
        """Somebody wants something of the session."""
        if self.is_suspended:
            return bool(self.rewinds or self.stopping or self.gives_up or self.waits.ready)
        return bool(self.inbox or self.rewinds)

    @property
    def has_work(self) -> bool:
        """Something is to be done, be it only to end."""
        closes = self.close and not self.stays_suspended
        return bool(self.has_messages or closes or (self.idle and not self.is_suspended))

    @property
    def unopened(self) -> str | None:
        """Why the session could not even be opened: it would fail again for those who come again."""
        return self.error if self.talk is None and self.exit is ExitReason.FAILED else None

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
    def leaves(self) -> bool:
        """The execution does not wait for people."""
        return self.options.suspend == "exit" or self.close

    @property
    def supersedes(self) -> bool:
        """A message ends a suspended turn."""
        return self.options.while_suspended == "supersede"

    @property
    def stays_suspended(self) -> bool:
        """The execution waits: it may not end, or would lose messages that were accepted."""
        return self.is_suspended and (not self.leaves or bool(self.inbox))

    @property
    def may_end(self) -> bool:
        """Nothing that came meanwhile holds an execution that has nothing to do."""
        return not (self.has_messages or self.stays_suspended)

    def stays(self, *, persistent: bool) -> bool:
        """Without anything to do the execution waits; otherwise it ends."""
        return self.stays_suspended if self.is_suspended else persistent

    @property
    def gives_up(self) -> ExitReason | None:
        """Why the suspended turn is to end without its answers."""
        if self.stopping == "interrupt":
            return ExitReason.INTERRUPTED
        return ExitReason.SUPERSEDED if self.supersedes and self.inbox else None

    def suspends(self) -> None:
        """The turn waits: whoever asked is told what for."""
        self.status = Status.SUSPENDED
        self.inbox.suspend(self.suspended(in_thread=True))
        if self.leaves and not self.supersedes:
            self.inbox.turn_away(self.suspended(in_thread=False))

    def goes(self) -> None:
        """The execution need not wait with the turn: nor do those who have asked since it began to wait."""
        if self.is_suspended and self.leaves:
            self.suspends()

    def suspended(self, *, in_thread: bool) -> AskResult:
        """What those are told who ask meanwhile."""
        fields: dict[str, Any] = {"in_thread": True} if in_thread else {}
        return AskResult(
            status=AskStatus.SUSPENDED,
            exit_reason=ExitReason.SUSPENDED,
            pending=self.pending(),
            **fields,
        )

    def pending(self) -> tuple[PendingCall, ...]:
        """Calls that wait for answers, here and below."""
        return (*self.waits.pending(), *self.below.pending())

    @property
    def rounds(self) -> int:
        """How often a step began to wait, here or below."""
        return self.waits.rounds + self.below.rounds

    @property
    def waits_below(self) -> bool:
        """Sub-agents of the turn under way wait for answers."""
        return self.turn is not None and bool(self.below.pending())

    def suspends_below(self) -> None:
        """A sub-agent waits: whoever asked is told what for."""
        if self.turn is not None:
            self.inbox.suspend(self.suspended(in_thread=True))

    def take_up(self, turn: SuspendedTurn) -> None:
        """Go on where another execution was suspended."""
        self.inbox.adopt(turn.messages)
        self.turn_start = turn.start
        self.waits.sleepers.in_order = not self.open.facts.parallel_tools
        self.waits.begin(turn)
        self.waits.expire()

    def drop_suspended(self) -> None:
        """The turn that was suspended is gone."""
        if self.waits.turn is not None:
            self.waits.end()
            self.status = Status.IDLE
            self.inbox.finish(AskResult(status=AskStatus.INTERRUPTED, exit_reason=ExitReason.INTERRUPTED))

    def result_of(self, input: SessionInput) -> SessionResult:
        """What the execution gives."""
        told = self.suspended(in_thread=True) if self.is_suspended else self.inbox.told
        if told is not None and len((told.text or "").encode(errors="surrogatepass")) > MAX_INLINE_TEXT:
            told = told.model_copy(update={"text": None})
        alone: dict[str, Any] = {} if self.options.persistent else {"told": told, "used": self.used}
        due = self.waits.sleepers.due() if alone and self.is_suspended else None
        alone |= {} if due is None else {"due": due}
        return SessionResult(
            session_id=input.session_id,
            thread_id=input.thread,
            exit_reason=self.exit,
            status=self.status,
            head=self.talk.head if self.talk else EMPTY,
            turns=self.turns,
            usage=self.usage,
            receipts=self.receipts,
            error=self.error,
            **alone,
        )

    def status_of(self, input: SessionInput) -> SessionInfo:
        """What the query answers."""
        talk = self.talk
        return SessionInfo(
            session_id=input.session_id,
            thread_id=input.thread,
            status=Status.SUSPENDED if self.waits_below else self.status,
            agent=input.agent,
            turns=self.turns,
            waiting=len(self.inbox),
            head=talk.head if talk else EMPTY,
            epoch=talk.handle.epoch if talk else 0,
            archived=talk.handle.archived if talk else True,
            usage=self.usage,
            exit_reason=self.exit if self.closing or self.rested else None,
            receipts=self.receipts,
            error=self.error,
            version=int(workflow.now().timestamp() * 1_000_000),
            run_id=self.turn.run_id if self.turn else None,
            repairs=talk.repairs if talk else 0,
            pending=self.pending(),
            options=self.options,
            **({} if input.parent is None else {"root_session_id": input.parent.root_session_id}),
        )


class Handlers:
    """Updates and the query of a session; registered before its ``run`` begins."""

    def __init__(
        self,
        input: SessionInput,
        live: Live,
        calls: TemporalCalls,
        supersede_below: Callable[[], Awaitable[None]],
    ) -> None:
        self._input, self._live, self._calls = input, live, calls
        self._supersede_below = supersede_below
        live.below, live.below.sleepers = calls.children.waits, live.waits.sleepers
        live.below.on_wait = live.suspends_below

    def register(self) -> None:
        """Make them known to the workflow."""
        workflow.set_update_handler("ask", self._on_ask, validator=self._check_message)
        workflow.set_update_handler("send_message", self._on_send, validator=self._check_message)
        workflow.set_update_handler("close", self._on_close)
        workflow.set_update_handler("rewind", self._on_rewind)
        workflow.set_update_handler("take_back", self._on_take_back)
        workflow.set_query_handler("status", self._on_status)

    def _check_message(self, message: UserMessage) -> None:
        check_size(len(message.text.encode(errors="surrogatepass")), MAX_TEXT_BYTES, "text of an update")
        if not message.text and message.ref is None:
            raise InvalidRequestError("text is empty")
        check_text(message.text, "text")
        if message.ref is not None and is_message_ref(message.ref):
            raise InvalidRequestError("ref: the name of a payload expected, not that of a message")

    async def _on_ask(self, message: UserMessage) -> AskResult:
        if self._live.closing:
            return AskResult(status=AskStatus.MOVED)
        before = self._live.inbox.answered(message.id)
        if before is not None:
            text = await self._calls.load_answer(self._input.thread, before)
            return AskResult(status=AskStatus.ANSWERED, in_thread=True, text=text, answer=before)
        known = self._live.inbox.find(message.id)
        if self._live.is_suspended and self._live.leaves and not self._live.supersedes:
            return self._live.suspended(in_thread=known is not None and known.taken)
        entry = known or self._live.inbox.put(message, asked=True)
        await self._supersede_below()
        told = entry.told
        await workflow.wait_condition(lambda: entry.result is not None or entry.told is not told)
        result = entry.result or entry.told
        assert result is not None
        return result

    async def _on_send(self, message: UserMessage) -> SendResult:
        if self._live.closing:
            return SendResult(accepted=False)
        if self._live.inbox.answered(message.id) is None:
            self._live.inbox.put(message)
            await self._supersede_below()
        return SendResult(accepted=True)

    async def _on_close(self) -> None:
        self._live.close = True
        self._live.goes()

    async def _on_rewind(self, request: RewindRequest) -> RewindResult:
        return await self._rewound(request)

    async def _on_take_back(self, request: TakeBackRequest) -> RewindResult:
        return await self._rewound(request)

    async def _rewound(self, request: RewindRequest | TakeBackRequest) -> RewindResult:
        if not self._live.closing:
            result = await self._live.rewinds.wait_for(request)
            if result.done or self._live.unopened is None:
                return result
        why: dict[str, Any] = {} if self._live.unopened is None else {"error": self._live.unopened}
        return RewindResult(done=False, **why)

    def _on_status(self) -> SessionInfo:
        return self._live.status_of(self._input)
