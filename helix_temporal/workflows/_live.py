"""What a running session is, and the handlers by which others see and change it."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

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
    SessionResult,
    Status,
    StopRequest,
    StopResult,
    UserMessage,
)
from helix_temporal.workflows._calls import TemporalCalls
from helix_temporal.workflows._conversation import Conversation
from helix_temporal.workflows._inbox import Inbox
from helix_temporal.workflows._rewinds import Rewinds
from helix_temporal.workflows._turns import Turn, TurnResult

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
    """

    inbox: Inbox
    quiet_since: datetime
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
    rewinds: Rewinds = field(default_factory=Rewinds)
    interrupted: bool = False
    used: Usage = field(default_factory=Usage)

    @staticmethod
    def of(input: SessionInput, now: datetime) -> "Live":
        """The state at the start of a run."""
        carried = input.carried
        if carried is None:
            return Live(Inbox(input.messages), now)
        live = Live(Inbox(carried.inbox, carried.answered), now, close=carried.close)
        live.inbox.told, live.used = carried.told, carried.used or Usage()
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
        return bool(self.inbox or self.rewinds)

    @property
    def has_work(self) -> bool:
        """Something is to be done, be it only to end."""
        return bool(self.has_messages or self.close or self.idle)

    def result_of(self, input: SessionInput) -> SessionResult:
        """What the execution gives."""
        told = self.inbox.told
        if told is not None and len((told.text or "").encode(errors="surrogatepass")) > MAX_INLINE_TEXT:
            told = told.model_copy(update={"text": None})
        alone = not input.options.persistent
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
            **({"told": told, "used": self.used} if alone else {}),
        )

    def status_of(self, input: SessionInput) -> SessionInfo:
        """What the query answers."""
        talk = self.talk
        return SessionInfo(
            session_id=input.session_id,
            thread_id=input.thread,
            status=self.status,
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
        )


class Handlers:
    """Updates and the query of a session; registered before its ``run`` begins."""

    def __init__(self, input: SessionInput, live: Live, calls: TemporalCalls) -> None:
        self._input, self._live, self._calls = input, live, calls

    def register(self) -> None:
        """Make them known to the workflow."""
        workflow.set_update_handler("ask", self._on_ask, validator=self._check_message)
        workflow.set_update_handler("send_message", self._on_send, validator=self._check_message)
        workflow.set_update_handler("stop", self._on_stop)
        workflow.set_update_handler("close", self._on_close)
        workflow.set_update_handler("rewind", self._on_rewind)
        workflow.set_update_handler("take_back", self._on_take_back)
        workflow.set_query_handler("status", self._on_status)
        workflow.set_signal_handler("interrupt", self._on_interrupt)

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
        entry = self._live.inbox.put(message)
        await workflow.wait_condition(lambda: entry.result is not None)
        assert entry.result is not None
        return entry.result

    async def _on_send(self, message: UserMessage) -> SendResult:
        if self._live.closing:
            return SendResult(accepted=False)
        if self._live.inbox.answered(message.id) is None:
            self._live.inbox.put(message)
        return SendResult(accepted=True)

    async def _on_stop(self, request: StopRequest) -> StopResult:
        if self._live.turn is None or self._live.turn_task is None:
            return StopResult(stopping=False)
        under_way = self._live.turn.run_id
        # A turn that is run again goes by another name; those who stop it know the first one.
        if request.run_id not in {None, under_way, under_way.split(".", 1)[0]}:
            return StopResult(stopping=False, run_id=under_way)
        if request.mode == "interrupt":
            self._live.turn.interrupted = True
            await self._calls.children.interrupt()
        else:
            self._live.aborting = True
            self._live.turn_task.cancel()
        return StopResult(stopping=True, run_id=under_way)

    async def _on_interrupt(self) -> None:
        """A parent ends its turn."""
        if self._live.turn is not None:
            self._live.turn.interrupted = True
            await self._calls.children.interrupt()
        elif self._input.parent is not None:
            self._live.interrupted = True

    async def _on_close(self) -> None:
        self._live.close = True

    async def _on_rewind(self, request: RewindRequest) -> RewindResult:
        if self._live.closing:
            return RewindResult(done=False)
        return await self._live.rewinds.wait_for(request)

    async def _on_take_back(self, request: TakeBackRequest) -> RewindResult:
        if self._live.closing:
            return RewindResult(done=False)
        return await self._live.rewinds.wait_for(request)

    def _on_status(self) -> SessionInfo:
        return self._live.status_of(self._input)
