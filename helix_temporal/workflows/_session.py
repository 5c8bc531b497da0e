"""A session: open, serve turns, save, flush.  The ready workflow, and the part to embed in one's own."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NoReturn

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from helix_temporal.errors import ColdTierBehindError, HelixError, InvalidRequestError
from helix_temporal.models.hooks import (
    AfterUserMessage,
    BeforeUserMessage,
    HookEvent,
    SessionEnded,
    SessionStarted,
    TurnCompleted,
)
from helix_temporal.models.messages import Usage
from helix_temporal.models.records import EMPTY
from helix_temporal.models.sessions import (
    AskResult,
    AskStatus,
    Carried,
    ExitReason,
    OpenSessionInput,
    Receipt,
    RewindRequest,
    RewindResult,
    SendResult,
    SessionInput,
    SessionResult,
    SessionStatus,
    Status,
    StopRequest,
    StopResult,
    UserMessage,
)
from helix_temporal.workflows._calls import OPEN_POLICY, TemporalCalls
from helix_temporal.workflows._finalise import Finaliser, catch_up, describe
from helix_temporal.workflows._hooks import Hooks, SessionHooks
from helix_temporal.workflows._inbox import Entry, Inbox
from helix_temporal.workflows._turns import Conversation, Turn, TurnResult, open_conversation, reopen

MAX_TEXT_BYTES: Final = 256 * 1024
"""A user's text in an update; longer ones are put aside by the client and sent by reference."""
_FLUSH_AGAIN: Final = 5.0


class _Move(Exception):
    """This run is long enough: continue as new."""


@dataclass(slots=True)
class _Rewind:
    """A rewind that waits for the end of the turn."""

    request: RewindRequest
    result: RewindResult | None = None


class AgentSession:
    """A session inside a workflow.

    Create it in ``@workflow.init`` (handlers registered later are too late for an update that comes
    with the start) and return ``await session.run()``.

    Attributes:
        values: The application's own state: change it between turns or in hooks; it is saved with the
            next step, or at the end.
    """

    def __init__(self, input: SessionInput, hooks: SessionHooks | None = None) -> None:
        carried = input.carried
        self._input = input
        self._calls = TemporalCalls(carried.policy if carried else OPEN_POLICY)
        self._hooks = Hooks(self._calls, hooks or SessionHooks())
        self._inbox = Inbox(carried.inbox if carried else input.messages, carried.answered if carried else ())
        self._talk: Conversation | None = None
        self._turn: Turn | None = None
        self._turn_task: asyncio.Task[TurnResult] | None = None
        self._status, self._exit = Status.OPENING, ExitReason.COMPLETED
        self._turns, self._usage, self._run_turns = 0, Usage(), 0
        self._receipts: tuple[Receipt, ...] = ()
        self._error: str | None = None
        self._closing = self._rested = self._cancelled = self._aborting = self._idle = False
        self._close = carried.close if carried else False
        self._rewinds: list[_Rewind] = []
        self._quiet_since = workflow.now()
        self.values: dict[str, Any] = dict(carried.values or {}) if carried else {}
        self._saved_values = dict(carried.saved_values or {}) if carried else {}
        self._register()

    # -- handlers

    def _register(self) -> None:
        workflow.set_update_handler("ask", self._on_ask, validator=self._check_message)
        workflow.set_update_handler("send_message", self._on_send, validator=self._check_message)
        workflow.set_update_handler("stop", self._on_stop)
        workflow.set_update_handler("close", self._on_close)
        workflow.set_update_handler("rewind", self._on_rewind)
        workflow.set_query_handler("status", self._on_status)

    def _check_message(self, message: UserMessage) -> None:
        size = len(message.text.encode(errors="surrogatepass"))
        if size > MAX_TEXT_BYTES:
            raise InvalidRequestError(f"text of {size} bytes, at most {MAX_TEXT_BYTES} in an update")
        if not message.text and message.ref is None:
            raise InvalidRequestError("text is empty")
        if any("\ud800" <= character <= "\udfff" or character == "\x00" for character in message.text):
            raise InvalidRequestError("text holds a lone surrogate or U+0000")

    async def _on_ask(self, message: UserMessage) -> AskResult:
        if self._closing:
            return AskResult(status=AskStatus.MOVED)
        before = self._inbox.answered(message.id)
        if before is not None and self._talk is not None:
            text = await self._calls.load_answer(self._talk.request.thread_id, before)
            return AskResult(status=AskStatus.ANSWERED, in_thread=True, text=text, answer=before)
        entry = self._inbox.put(message)
        await workflow.wait_condition(lambda: entry.result is not None)
        assert entry.result is not None
        return entry.result

    async def _on_send(self, message: UserMessage) -> SendResult:
        if self._closing:
            return SendResult(accepted=False)
        if self._inbox.answered(message.id) is None:
            self._inbox.put(message)
        return SendResult(accepted=True)

    async def _on_stop(self, request: StopRequest) -> StopResult:
        if self._turn is None or self._turn_task is None:
            return StopResult(stopping=False)
        if request.mode == "interrupt":
            self._turn.interrupted = True
        else:
            self._aborting = True
            self._turn_task.cancel()
        return StopResult(stopping=True)

    async def _on_close(self) -> None:
        self._close = True

    async def _on_rewind(self, request: RewindRequest) -> RewindResult:
        if self._closing:
            return RewindResult(done=False)
        rewind = _Rewind(request)
        self._rewinds.append(rewind)
        await workflow.wait_condition(lambda: rewind.result is not None)
        assert rewind.result is not None
        return rewind.result

    def _on_status(self) -> SessionStatus:
        talk = self._talk
        return SessionStatus(
            session_id=self._input.session_id,
            thread_id=self._input.thread,
            status=self._status,
            agent=self._input.agent,
            turns=self._turns,
            waiting=len(self._inbox),
            head=talk.head if talk else EMPTY,
            epoch=talk.handle.epoch if talk else 0,
            archived=talk.handle.archived if talk else True,
            usage=self._usage,
            exit_reason=self._exit if self._closing or self._rested else None,
            receipts=self._receipts,
            error=self._error,
        )

    # -- life

    async def run(self) -> SessionResult:
        """Serve turns until the session ends; saves and flushes on every way out.

        Raises:
            ApplicationError: The session failed; its type is that of the original error.
            asyncio.CancelledError: It was cancelled, after everything was saved and archived.
            ContinueAsNewError: It goes on in another run.
        """
        failure: Exception | None = None
        try:
            if self._was_refused():
                self._rested = True  # the first ask was rejected: there is nothing to do
            else:
                await self._open()
                await self._serve()
        except asyncio.CancelledError:
            self._cancelled, self._exit, self._status = True, ExitReason.CANCELLED, Status.INTERRUPTED
        except _Move:
            await self._move()
        except Exception as error:
            failure, self._error = error, describe(error)
            self._exit, self._status = ExitReason.FAILED, Status.FAILED
        finally:
            # On success, failure and cancel, but not on terminate or a time-out of the run.  On cache
            # eviction the SDK raises a BaseException here: it must pass, the run is replayed elsewhere.
            if not self._rested:
                await self._end()
        if failure is not None:
            self._fail(failure)
        if self._cancelled:
            self._exit, self._status = ExitReason.CANCELLED, Status.INTERRUPTED
            raise asyncio.CancelledError
        return self._result()

    def _was_refused(self) -> bool:
        """Started for an ask that the validator rejected, so that nothing came with the start."""
        first = self._input.expects_ask and self._input.carried is None
        return first and not self._inbox and workflow.all_handlers_finished()

    async def _open(self) -> None:
        request = OpenSessionInput(
            session_id=self._input.session_id,
            thread_id=self._input.thread,
            agent=self._input.agent,
            owner=workflow.info().first_execution_run_id,
            mode=self._input.mode,
            **_given(
                fork_from=self._input.fork_from,
                rewind_to=self._input.rewind_to,
                metadata=self._input.metadata,
            ),
        )
        carried = self._input.carried
        if carried is not None:
            self._talk = Conversation(request, carried.handle, carried.facts)
            self._turns, self._usage = carried.turns, carried.usage
            return
        opened = await open_conversation(self._calls, request)
        self._calls.policy = opened.policy
        self._talk = Conversation(request, opened.handle, opened.facts)
        self._turns, self._usage = opened.turns, opened.usage
        if opened.values:
            self.values = {**self.values, **opened.values}
            self._saved_values = dict(opened.values)
        mode = "new" if opened.created and self._input.mode == "auto" else self._input.mode
        await self._tell("session_started", SessionStarted, mode=mode if mode != "auto" else "continue")

    async def _serve(self) -> None:
        idle = asyncio.create_task(self._watch_idle()) if self._input.options.persistent else None
        try:
            while True:
                await self._next_work()
                if self._rewinds:
                    await self._rewind()
                elif self._inbox:
                    await self._serve_turn()
                    self._move_if_long()
                elif await self._rest():
                    return
                if self._cancelled:
                    raise asyncio.CancelledError
        finally:
            if idle is not None:
                idle.cancel()

    async def _next_work(self) -> None:
        """Wait for a message, a rewind, or the end; meanwhile try again to archive what is not."""
        while self._input.options.persistent and not self._has_work():
            assert self._talk is not None
            behind = not self._talk.handle.archived and self._calls.policy.flush_each_step
            timeout = min(_FLUSH_AGAIN, self._calls.policy.flush_retry_maximum) if behind else None
            try:
                await workflow.wait_condition(self._has_work, timeout=timeout)
            except TimeoutError:
                await catch_up(self._calls, self._talk)

    def _has_work(self) -> bool:
        return bool(self._inbox or self._rewinds or self._close or self._idle)

    async def _watch_idle(self) -> None:
        """One timer, set again for what is left: a time-out on each wait would cost two events a turn."""
        limit = timedelta(seconds=self._input.options.idle_timeout)
        while True:
            left = limit if self._turn is not None else self._quiet_since + limit - workflow.now()
            if left <= timedelta(0):
                self._idle = True
                await workflow.wait_condition(lambda: not self._idle)
            else:
                await asyncio.sleep(left.total_seconds())

    # -- turns

    async def _serve_turn(self) -> None:
        assert self._talk is not None
        entries = await self._admitted(self._inbox.take())
        if not entries:
            return
        self._status = Status.RUNNING
        turn = self._turn = Turn(
            self._calls,
            self._talk,
            number=self._turns + 1,
            max_steps=self._input.options.max_steps or self._talk.facts.max_steps,
            values=dict(self.values) if self.values != self._saved_values else None,
        )
        saved = dict(self.values)
        start = self._talk.head
        self._turn_task = asyncio.create_task(turn.run([entry.message for entry in entries]))
        try:
            result = await self._turn_task
        except asyncio.CancelledError:
            if not self._aborting:
                raise
            # A late attempt of the step must not bring the turn back.
            await reopen(self._calls, self._talk, start, start)
            self._inbox.finish(AskResult(status=AskStatus.INTERRUPTED, exit_reason=ExitReason.INTERRUPTED))
            return
        except ColdTierBehindError as behind:
            # Refused before anything of the turn was in the thread.
            self._inbox.finish(AskResult(status=AskStatus.FAILED, error=describe(behind)))
            return
        except Exception as error:
            self._inbox.finish(
                AskResult(status=AskStatus.FAILED, in_thread=turn.in_thread, error=describe(error))
            )
            raise
        finally:
            self._turn, self._turn_task, self._aborting = None, None, False
            self._status, self._quiet_since, self._idle = Status.IDLE, workflow.now(), False
        self._saved_values = saved
        await self._turn_over(turn, result, entries)

    async def _turn_over(self, turn: Turn, result: TurnResult, entries: list[Entry]) -> None:
        repeated = len(result.dropped) == len(entries)
        if not repeated:
            self._turns, self._run_turns = self._turns + 1, self._run_turns + 1
            self._usage = self._usage + result.usage
        self._exit = result.exit_reason
        self._inbox.finish(_ask_result(result), answer=result.answer)
        if repeated:
            return
        for entry in entries:
            await self._tell(
                "after_user_message", AfterUserMessage, message_id=entry.message.id, text=entry.message.text
            )
        await self._tell(
            "turn_completed",
            TurnCompleted,
            turn=self._turns,
            steps=turn.steps,
            exit_reason=result.exit_reason.value,
            answer_id=result.answer.id if result.answer else None,
            usage=result.usage,
        )

    async def _admitted(self, entries: list[Entry]) -> list[Entry]:
        """Let the before-hook change or refuse each message."""
        assert self._talk is not None
        if not self._hooks.wants(self._talk.facts, "before_user_message"):
            return entries
        admitted = []
        for entry in entries:
            event = BeforeUserMessage(**self._who(), message_id=entry.message.id, text=entry.message.text)
            decision = await self._hooks.ask(self._talk.facts, "before_user_message", event)
            if decision.refuse is not None:
                self._inbox.drop(entry, AskResult(status=AskStatus.REFUSED, error=decision.refuse))
                continue
            if decision.text is not None:
                entry.message = entry.message.model_copy(update={"text": decision.text, "ref": None})
            admitted.append(entry)
        return admitted

    async def _rewind(self) -> None:
        assert self._talk is not None
        rewind = self._rewinds.pop(0)
        request = self._talk.request.model_copy(
            update={"mode": "continue", "rewind_to": rewind.request.to, "fork_from": None}
        )
        try:
            opened = await open_conversation(self._calls, request)
        except HelixError as error:
            rewind.result = RewindResult(done=False, head=self._talk.head, error=describe(error))
            return
        self._talk.handle = opened.handle
        rewind.result = RewindResult(done=True, head=opened.handle.head)

    # -- ends

    def _move_if_long(self) -> None:
        limit = self._input.options.max_turns_per_run
        if workflow.info().is_continue_as_new_suggested() or (limit and self._run_turns >= limit):
            raise _Move

    async def _move(self) -> NoReturn:
        """Continue as new: everybody who waits asks again there; the thread stays hot and open."""
        assert self._talk is not None
        self._rested = self._closing = True
        inbox, answered = self._inbox.carried()
        self._inbox.give_up(AskResult(status=AskStatus.MOVED))
        self._refuse_rewinds()
        await self._drain()
        carried = Carried(
            handle=self._talk.handle,
            facts=self._talk.facts,
            policy=self._calls.policy,
            inbox=inbox,
            answered=answered,
            turns=self._turns,
            usage=self._usage,
            close=self._close,
            values=self.values,
            saved_values=self._saved_values,
        )
        if self._cancelled:
            # The cancel came while we drained: end here, as cancelled, rather than in the next run.
            self._rested, self._exit, self._status = False, ExitReason.CANCELLED, Status.INTERRUPTED
            raise asyncio.CancelledError
        workflow.continue_as_new(self._input.model_copy(update={"carried": carried, "messages": ()}))

    async def _rest(self) -> bool:
        """Archive and drop what is hot, then end unless somebody came meanwhile.

        The check and the return are in one activation, without a flag before: whoever comes later
        finds the run ended and starts the next one; nobody is told to go away.
        """
        assert self._talk is not None
        self._status = Status.ENDING
        self._receipts = await self._finaliser().run(self._talk, values=self._unsaved(), closes=False)
        await self._tell("session_ended", SessionEnded, **self._ended())
        self._quiet_since, self._idle = workflow.now(), False
        if self._inbox or self._rewinds or not workflow.all_handlers_finished():
            self._status = Status.IDLE
            return False
        self._rested = True
        self._status = Status.WAITING if self._exit is ExitReason.WAITING else Status.COMPLETED
        return True

    async def _end(self) -> None:
        """Every way out but a quiet one: a step may still be running, so its epoch is shut."""
        self._closing = True
        if self._exit is ExitReason.FAILED:
            self._inbox.give_up(AskResult(status=AskStatus.FAILED, error=self._error))
        else:
            self._inbox.give_up(AskResult(status=AskStatus.INTERRUPTED, exit_reason=self._exit))
        self._refuse_rewinds()
        if self._talk is not None:
            finaliser = self._finaliser()
            self._receipts = await finaliser.run(self._talk, values=self._unsaved(), closes=True)
            hook = self._talk.facts.hooks.session_ended
            if hook is not None:
                event = SessionEnded(**self._who(), **self._ended())
                self._receipts = (*self._receipts, await finaliser.ended(hook, event))
        await self._drain()

    async def _drain(self) -> None:
        """Let handlers return; a cancel meanwhile is remembered."""
        while True:
            try:
                await workflow.wait_condition(workflow.all_handlers_finished)
            except asyncio.CancelledError:
                self._on_cancel()
            else:
                return

    def _refuse_rewinds(self) -> None:
        for rewind in self._rewinds:
            rewind.result = RewindResult(done=False)

    def _on_cancel(self) -> None:
        self._cancelled = True

    def _finaliser(self) -> Finaliser:
        return Finaliser(self._calls, self._on_cancel)

    def _unsaved(self) -> dict[str, Any] | None:
        """The application's values if they changed since the last step saved them."""
        return None if self.values == self._saved_values else dict(self.values)

    def _fail(self, failure: Exception) -> NoReturn:
        kind = (self._error or "").split(":", 1)[0] or type(failure).__name__
        result = self._result()
        raise ApplicationError(self._error or "", result, type=kind, non_retryable=True) from failure

    def _result(self) -> SessionResult:
        return SessionResult(
            session_id=self._input.session_id,
            thread_id=self._input.thread,
            exit_reason=self._exit,
            status=self._status,
            head=self._talk.head if self._talk else EMPTY,
            turns=self._turns,
            usage=self._usage,
            receipts=self._receipts,
            error=self._error,
        )

    # -- hooks

    def _who(self) -> dict[str, Any]:
        return {
            "session_id": self._input.session_id,
            "thread_id": self._input.thread,
            "agent": self._input.agent,
            "metadata": self._input.metadata,
        }

    def _ended(self) -> dict[str, Any]:
        return {
            "exit_reason": self._exit.value,
            "turns": self._turns,
            "usage": self._usage,
            "error": self._error,
        }

    async def _tell(self, name: str, event: type[HookEvent], **fields: Any) -> None:
        assert self._talk is not None
        if self._hooks.wants(self._talk.facts, name):
            await self._hooks.tell(self._talk.facts, name, event(**self._who(), **fields))


def _ask_result(result: TurnResult) -> AskResult:
    if result.answer is None:
        return AskResult(
            status=AskStatus.INTERRUPTED, in_thread=result.in_thread, exit_reason=result.exit_reason
        )
    fields: dict[str, Any] = {"text": result.text} if result.text is not None else {}
    return AskResult(status=AskStatus.ANSWERED, in_thread=True, answer=result.answer, **fields)


def _given(**fields: Any) -> dict[str, Any]:
    """Only what was given: histories stay small."""
    return {name: value for name, value in fields.items() if value}


@workflow.defn(name="helix.session")
class SessionWorkflow:
    """A session, ready to use: one live execution a session, started and messaged by `SessionClient`."""

    @workflow.init
    def __init__(self, input: SessionInput) -> None:
        self._session = AgentSession(input)

    @workflow.run
    async def run(self, input: SessionInput) -> SessionResult:
        """Serve the session until it is idle, closed, cancelled or failed."""
        return await self._session.run()
