"""Sub-agents: each call of an agent tool is a child workflow, started, awaited and stopped here."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import (
    ApplicationError,
    CancelledError,
    ChildWorkflowError,
    FailureError,
    TerminatedError,
    WorkflowAlreadyStartedError,
)
from temporalio.exceptions import TimeoutError as TimedOutError

from helix_temporal.errors import AgentNotServedError
from helix_temporal.models.agents import ToolFacts
from helix_temporal.models.base import only_set, only_truthy
from helix_temporal.models.ids import workflow_id
from helix_temporal.models.messages import Finish, Usage, are_left_out
from helix_temporal.models.sessions import (
    ArchiveMode,
    AskResult,
    AskStatus,
    ExitReason,
    ForkFrom,
    SessionInput,
    SessionOptions,
    SessionResult,
    UserMessage,
)
from helix_temporal.models.states import SessionProperties
from helix_temporal.models.steps import ChildEnd, OpenSessionInput, ToolInput, ToolResult
from helix_temporal.models.waiting import (
    MAX_DEPTH,
    HasStartedInput,
    MessageRef,
    ParentLink,
    SuspendedCall,
    Wake,
    call_of,
    child_session_id,
    task_of,
)
from helix_temporal.session.waiting import ResumedCall, SuspendedCalls
from helix_temporal.workflows.clock import now_ms

HasStarted = Callable[[HasStartedInput], Awaitable[bool]]
"""Tells whether a worker has begun with an execution, and ends one that none has begun with."""


async def check_begun(
    handle: "workflow.ChildWorkflowHandle[Any, Any]", facts: ToolFacts, has_started: HasStarted
) -> None:
    """Give a worker its time to begin with a session; come back when one has, or when it is over.

    Temporal has no schedule-to-start time-out for workflows: a timer and a look at the child's history do as
    much, and a child that ends before leaves no more than the timer.

    Raises:
        ApplicationError: None has begun, and none will.
    """
    with contextlib.suppress(TimeoutError):
        await workflow.wait_condition(handle.done, timeout=facts.schedule_to_start)
        return
    if await has_started(HasStartedInput(workflow_id=handle.id, run_id=handle.first_execution_run_id or "")):
        return
    with contextlib.suppress(FailureError):
        await handle
    kind = AgentNotServedError.__name__
    raise ApplicationError(
        f"{kind}: no worker of task queue {facts.task_queue!r} began with its session within "
        f"{facts.schedule_to_start:g} s; start one that serves agent {facts.agent!r}",
        type=kind,
        non_retryable=True,
    )


async def signal_workflow(to: str, name: str, *arguments: object) -> bool:
    """Signal a workflow; false if it has ended."""
    try:
        await workflow.get_external_workflow_handle(to).signal(name, args=arguments)
    except FailureError:
        return False
    return True


_WITHHELD: Final = frozenset({Finish.REFUSAL, Finish.CONTENT_FILTER})
_ENDS: Final[Mapping[ExitReason | None, str]] = {
    ExitReason.MAX_STEPS: "used all the steps it is allowed without coming to an answer",
    ExitReason.WAITING: "waits for a message that nobody here can send, and gave no answer",
    ExitReason.INTERRUPTED: "was interrupted before it had an answer",
    ExitReason.CANCELLED: "was cancelled before it had an answer",
}


def child_result(result: SessionResult, facts: ToolFacts, before: Usage | None = None) -> ToolResult:
    """What a session that came to its end gives; ``before`` is what it used in executions for this call."""
    told = result.told or AskResult(status=AskStatus.FAILED, error="it was given no message")
    used = _sum_usage(result.used, before) if facts.thread == "continue" else _all_used(result, told, before)
    if told.status is not AskStatus.ANSWERED:
        status: Literal["interrupted", "failed"] = "failed"
        if told.exit_reason in {ExitReason.INTERRUPTED, ExitReason.CANCELLED}:
            status = "interrupted"
        return _error_result(_why_no_answer(told), result.session_id, status, used)
    if told.finish in _WITHHELD:
        why = f"The sub-agent gave no answer ({told.finish}). {told.text or ''}".strip()
        return _error_result(why, result.session_id, "failed", used)
    fields: dict[str, Any] = {"child": _make_child_end(result.session_id, "completed")}
    if told.text is not None:
        fields["text"] = told.text
    elif told.answer is not None:
        at = told.answer
        fields["ref"] = MessageRef(thread_id=result.thread_id, position=at.position, id=at.id).named()
    return ToolResult(**fields, **_with_usage(used))


def remaining_wait(result: SessionResult, wait: SuspendedCall) -> SuspendedCall | None:
    """What a session waits for that has ended; None if it has come to its end."""
    told = result.told
    if result.exit_reason is not ExitReason.SUSPENDED or told is None or not told.pending:
        return None
    used = _sum_usage(result.used, wait.used)
    return wait.model_copy(update={"calls": told.pending, "due": result.due} | only_set(used=used))


def late_result(facts: ToolFacts, session_id: str, used: Usage | None) -> ToolResult:
    """What a call gives whose time ended while its session was suspended."""
    return _error_result(f"The sub-agent {_too_late(facts)}.", session_id, "failed", used)


def failure_result(
    failure: FailureError, facts: ToolFacts, session_id: str, workflow: str, before: Usage | None = None
) -> ToolResult:
    """What a session that failed, or could not be started, gives."""
    cause = failure.cause if isinstance(failure, ChildWorkflowError) and failure.cause else failure
    used = None
    status: Literal["interrupted", "failed"] = "failed"
    if isinstance(cause, WorkflowAlreadyStartedError):
        why = f"is busy: its session {session_id!r} is held by another execution, workflow {workflow!r}"
    elif isinstance(cause, TimedOutError):
        why = _too_late(facts)
    elif isinstance(cause, TerminatedError):
        why = "was terminated"
    elif isinstance(cause, CancelledError):
        why, status = "was cancelled before it had an answer", "interrupted"
    else:
        why, used = f"failed: {getattr(cause, 'message', type(cause).__name__)}", _used_before(cause)
    killed = isinstance(cause, TimedOutError | TerminatedError)
    return _error_result(f"The sub-agent {why}.", session_id, status, _sum_usage(used, before), killed=killed)


def with_call_facts(result: ToolResult, facts: ToolFacts, took: timedelta) -> ToolResult:
    """The result with what is counted of the call."""
    if result.child is None:
        return result
    counted = {"agent": facts.agent or "", "duration_ms": int(took.total_seconds() * 1000)}
    return result.model_copy(update={"child": result.child.model_copy(update=counted)})


def interrupted_result(session_id: str) -> ToolResult:
    """What a call gives whose turn came after its session was interrupted."""
    return _error_result("The sub-agent was interrupted before it began.", session_id, "interrupted", None)


def refusal_result(session_id: str, why: str) -> ToolResult:
    """A call for which no session is started."""
    return _error_result(f"The sub-agent was not called: {why}.", session_id, "failed", None)


def _why_no_answer(told: AskResult) -> str:
    if told.status is AskStatus.REFUSED:
        return f"The sub-agent refused the task: {told.error or 'no reason given'}"
    if told.status is AskStatus.FAILED:
        return f"The sub-agent failed: {told.error or 'for no known reason'}"
    return f"The sub-agent {_ENDS.get(told.exit_reason, 'ended without an answer')}."


def _all_used(result: SessionResult, told: AskResult, before: Usage | None) -> Usage | None:
    """A session that serves one call alone has used all of it for that, whatever executions it took."""
    return result.usage if told.status is AskStatus.ANSWERED else _sum_usage(result.used, before)


def _sum_usage(used: Usage | None, before: Usage | None) -> Usage | None:
    return before if used is None else used if before is None else used + before


def _too_late(facts: ToolFacts) -> str:
    return f"had no answer within {facts.schedule_to_close:g} s" if facts.schedule_to_close else "timed out"


def _used_before(cause: BaseException) -> Usage | None:
    """What a session used before it failed: its result travels with the failure."""
    details = cause.details if isinstance(cause, ApplicationError) else ()
    if not details or not isinstance(details[0], dict):
        return None
    try:
        return SessionResult.model_validate(details[0]).used
    except ValidationError:
        return None


def _error_result(
    text: str,
    session_id: str,
    status: Literal["interrupted", "failed"],
    used: Usage | None,
    *,
    killed: bool = False,
) -> ToolResult:
    child = _make_child_end(session_id, status)
    if killed:
        child = child.model_copy(update={"killed": True})
    return ToolResult(text=text, is_error=True, child=child, **_with_usage(used))


def _make_child_end(session_id: str, status: Literal["completed", "interrupted", "failed"]) -> ChildEnd:
    return ChildEnd(session_id=session_id, status=status)


def _with_usage(used: Usage | None) -> dict[str, Any]:
    return {} if used is None or used == Usage() else {"usage": used}


END_SECONDS: Final = 300.0
"""How long a session may take that is started to end its turn."""


def task_message(facts: ToolFacts, request: ToolInput, call: str) -> UserMessage | None:
    """The task as the child's first message; large arguments stay in the parent's thread."""
    if are_left_out(request.call.arguments):
        answer, ordinal = request.key.rsplit("/", 2)[1:]
        ref = MessageRef(
            thread_id=request.thread_id,
            position=request.position - 1,
            id=answer,
            call=int(ordinal),
            argument=facts.argument,
        )
        return UserMessage(id=call, ref=ref.named())
    text = task_of(request.call.arguments, facts.argument)
    return None if text is None else UserMessage(id=call, text=text)


def new_call_input(
    facts: ToolFacts,
    request: ToolInput,
    wait: SuspendedCall,
    message: UserMessage,
    link: ParentLink,
    options: SessionOptions,
) -> SessionInput:
    """For a call that is made."""
    fields: dict[str, Any] = {}
    if facts.thread == "fork":
        # What is finished is all before the turn that asks: no call without its result is copied.
        fields = {"mode": "fork", "fork_from": ForkFrom(thread_id=request.thread_id)}
    return SessionInput(
        session_id=wait.session_id,
        agent=facts.agent or "",
        options=options,
        messages=(message,),
        parent=link,
        **fields,
        **_metadata_fields(request.metadata),
        **_tracing_fields(request),
    )


def resumed_call_input(
    resumed: ResumedCall,
    request: ToolInput,
    message: UserMessage,
    link: ParentLink,
    options: SessionOptions,
) -> SessionInput:
    """For a call that has waited.

    The message is the same: where the turn has ended meanwhile its answer is found, where it is lost it is
    run again.
    """
    wait = resumed.call
    if resumed.ends or resumed.late:
        return ending_call_input(wait, link, request.metadata)
    return SessionInput(
        session_id=wait.session_id,
        agent=wait.agent,
        mode="continue",
        options=options,
        messages=(message,),
        parent=link,
        woken=Wake(**only_truthy(answers=resumed.answers)),
        **_metadata_fields(request.metadata),
        **_tracing_fields(request),
    )


def ending_call_input(wait: SuspendedCall, link: ParentLink, metadata: dict[str, str]) -> SessionInput:
    """For a call that is nobody's any more: its turn ends, and what waits below it."""
    return SessionInput(
        session_id=wait.session_id,
        agent=wait.agent,
        mode="continue",
        options=child_options(),
        parent=link,
        woken=Wake(ends=True),
        **_metadata_fields(metadata),
    )


def seconds_left(facts: ToolFacts, start: SessionInput, wait: SuspendedCall, now: int) -> float | None:
    """How long its execution may last; None for ever."""
    if start.woken is None:
        return facts.schedule_to_close
    if start.woken.ends:
        return END_SECONDS
    return None if wait.until is None else max((wait.until - now) / 1000, 0.001)


def should_wait(facts: ToolFacts, request: ToolInput, now: int) -> SuspendedCall:
    """The call, should it have to wait."""
    call, limit = call_of(request.key), facts.schedule_to_close
    fields: dict[str, Any] = {} if limit is None else {"until": now + int(limit * 1000)}
    if facts.task_queue is not None:
        fields["task_queue"] = facts.task_queue
    return SuspendedCall(
        at=int(request.key.rsplit("/", 1)[1]),
        session_id=child_session_id(request.session_id, facts.name, facts.thread, call),
        call=call,
        agent=facts.agent or "",
        since=now,
        **fields,
    )


def facts_of(wait: SuspendedCall) -> ToolFacts:
    """Of the tool that was called, as far as it takes to end the call."""
    elsewhere = only_set(task_queue=wait.task_queue)
    return ToolFacts(name=wait.agent, activity="", kind="agent", agent=wait.agent, **elsewhere)


def child_options(archive: ArchiveMode | None = None) -> SessionOptions:
    """How the session of a sub-agent behaves: it ends when it waits; ``archive`` is its caller's."""
    # What an earlier call left unanswered must not hold up a new one.
    return SessionOptions(
        persistent=False, suspend="exit", while_suspended="supersede", **only_set(archive=archive)
    )


def _metadata_fields(metadata: dict[str, str]) -> dict[str, Any]:
    return {"metadata": metadata} if metadata else {}


def _tracing_fields(request: ToolInput) -> dict[str, Any]:
    trace = request.tracing_context
    return {} if trace is None else {"properties": SessionProperties(tracing_context=trace)}


SESSION_WORKFLOW: Final = "helix.session"
HELD_PAUSES: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds between attempts to start a session that has a live execution already."""
HELD_SECONDS: Final = 60.0
"""How long a session is waited for that somebody else has."""
STOP_SECONDS: Final = 300.0
"""How long a child that was asked to end is waited for; it has been asked, and ends all the same."""


@dataclass(slots=True, eq=False)
class _Child:
    """One call's child.

    Attributes:
        handle: Once it has started.
        cancelled, interrupted: Asked for, perhaps before it had started.
        held_since, pauses: Another execution has its session, and how often that was waited for.
    """

    session_id: str
    handle: "workflow.ChildWorkflowHandle[Any, SessionResult] | None" = None
    run: "asyncio.Task[SessionResult] | None" = None
    cancelled: bool = False
    interrupted: bool = False
    held_since: datetime | None = None
    pauses: int = 0

    def cancel(self) -> None:
        """Ask it to end, once."""
        if self.handle is not None and not self.cancelled:
            self.handle.cancel()
        self.cancelled = True


@dataclass(slots=True)
class SubAgents:
    """The sub-agents of one session.

    Attributes:
        parent: Whose sub-agent the session itself is.
        has_started: Whether anybody serves a session.
        workflow_id: The workflow id of a session of the same deployment.
        suspended: Those whose sessions have ended, since they wait.
        cut: Sessions of calls that were cut off, for the session store.
        archive: As in `SessionOptions`; theirs, too.
    """

    parent: ParentLink | None
    has_started: HasStarted
    workflow_id: Callable[[str], str] = workflow_id
    suspended: SuspendedCalls = field(default_factory=lambda: SuspendedCalls(now_ms))
    cut: list[str] = field(default_factory=list)
    archive: ArchiveMode | None = None
    _running: list[_Child] = field(default_factory=list)
    _interrupted: str | None = None
    _turns: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def run(self, facts: ToolFacts, request: ToolInput) -> ToolResult | SuspendedCall:
        """Run one call to the sub-agent's answer; whatever becomes of it is a result for the model.

        One whose session has ended, since it waits for people, goes on from there once it is called again.
        A cancel is passed on to the child, which is then waited for.
        """
        wait = should_wait(facts, request, now_ms())
        link = self._build_parent_link(request.session_id, wait.call)
        if link.depth > MAX_DEPTH:
            return refusal_result(wait.session_id, f"agents call each other {MAX_DEPTH} deep at most")
        message = task_message(facts, request, wait.call)
        if message is None:
            return refusal_result(wait.session_id, f"{facts.argument!r} must be a text that says what to do")
        async with self._lock_thread(facts, wait.session_id):
            resumed = self.suspended.resume(wait.at)
            options = child_options(self.archive)
            if resumed is not None and resumed.call.calls:
                start = resumed_call_input(resumed, request, message, link, options)
                return await self._follow_child(facts, start, resumed)
            if self.suspended.is_suspended(wait.session_id):
                self.suspended.suspend(wait)
                return wait
            if self._is_interrupted(request, resumed):
                return interrupted_result(wait.session_id)
            start = new_call_input(facts, request, wait, message, link, options)
            return await self._follow_child(facts, start, ResumedCall(wait))

    async def send_answers(self) -> None:
        """Send answers to those that run; one that has ended meanwhile is started again with them."""
        for session_id, answer in self.suspended.take_unsent():
            await signal_workflow(self.workflow_id(session_id), "take_answer", answer)

    def dismiss(self, request: OpenSessionInput) -> None:
        """Let suspended sessions end their turns, which are nobody's any more; `ended` waits for that."""
        for wait in self.suspended.dismiss():
            self.cut.append(wait.session_id)
            start = ending_call_input(
                wait, self._build_parent_link(request.session_id, wait.call), request.metadata
            )
            child = _Child(wait.session_id)
            task = self._begin_child(child, facts_of(wait), start, END_SECONDS)
            task.add_done_callback(lambda done, child=child: self._release_dismissed(child, done))  # type: ignore[misc]

    def _release_dismissed(self, child: _Child, task: "asyncio.Task[SessionResult]") -> None:
        if not task.cancelled():
            task.exception()  # what became of it is nobody's any more
        self._running.remove(child)

    def _is_interrupted(self, request: ToolInput, resumed: ResumedCall | None) -> bool:
        turn = request.run_id is not None and request.run_id == self._interrupted
        return turn or (resumed is not None and resumed.ends)

    async def interrupt(self, run_id: str) -> None:
        """Let each child of this turn end after its present step, and none begin."""
        self._interrupted = run_id
        self.suspended.end_all()
        for child in tuple(self._running):
            child.interrupted = True
            await _pass_on(child, self.workflow_id(child.session_id))

    async def ended(self, on_cancel: Callable[[], None], cut: OpenSessionInput | None = None) -> None:
        """Wait until no child runs; cancels meanwhile are remembered.

        Where the turn is ``cut``, those that are suspended are to end theirs.
        """
        while True:
            if cut is not None:
                self.dismiss(cut)
            if not self._running:
                return
            try:
                await workflow.wait_condition(lambda: not self._running)
            except asyncio.CancelledError:
                on_cancel()

    def taken_cut(self) -> tuple[str, ...]:
        """Sessions of calls that were cut off since this was asked last."""
        cut, self.cut = tuple(self.cut), []
        return cut

    def _lock_thread(self, facts: ToolFacts, session_id: str) -> AbstractAsyncContextManager[object]:
        """Calls of one continuing thread are served one after the other."""
        if facts.thread != "continue":
            return contextlib.nullcontext()
        return self._turns.setdefault(session_id, asyncio.Lock())

    def _build_parent_link(self, session_id: str, call: str) -> ParentLink:
        parent = self.parent
        return ParentLink(
            session_id=session_id,
            root_session_id=parent.root_session_id if parent else session_id,
            call=call,
            depth=parent.depth + 1 if parent else 1,
        )

    async def _follow_child(
        self, facts: ToolFacts, start: SessionInput, resumed: ResumedCall
    ) -> ToolResult | SuspendedCall:
        call, child = resumed.call, _Child(start.session_id)
        limit = seconds_left(facts, start, call, now_ms())
        task = self._begin_child(child, facts, start, limit)
        try:
            await _await_child(child, task)
            waits = _find_suspension(task, call)
            if waits is not None:
                self.suspended.suspend(waits)
                return waits
        except asyncio.CancelledError:
            waits = _find_suspension(task, call)
            if waits is None:
                self.cut.append(child.session_id)
                self.suspended.forget_resumed(call.at)
            else:
                # It had ended before it could be asked to.
                self.suspended.abandon(waits)
            raise
        finally:
            self._running.remove(child)
        try:
            result = child_result(task.result(), facts, call.used)
        except FailureError as failure:
            result = failure_result(
                failure, facts, child.session_id, self.workflow_id(child.session_id), call.used
            )
        if resumed.late:
            result = late_result(facts, child.session_id, result.usage)
        return with_call_facts(result, facts, timedelta(milliseconds=now_ms() - call.since))

    def _begin_child(
        self, child: _Child, facts: ToolFacts, start: SessionInput, limit: float | None
    ) -> "asyncio.Task[SessionResult]":
        self._running.append(child)
        task = child.run = asyncio.create_task(self._execute_child(child, facts, start, limit))
        return task

    async def _execute_child(
        self, child: _Child, facts: ToolFacts, start: SessionInput, limit: float | None
    ) -> SessionResult:
        """Start the child, once no other execution has its session, and wait for its result.

        Raises:
            FailureError: It failed, somebody else has the session, or nobody serves it.
        """
        while True:
            try:
                child.handle = await _start_child(facts, start, limit, self.workflow_id(start.session_id))
            except WorkflowAlreadyStartedError:
                if not await _wait_until_free(child, facts, self.workflow_id(child.session_id)):
                    raise
                continue
            break
        if child.cancelled:
            child.handle.cancel()
        elif child.interrupted:
            await _pass_on(child, self.workflow_id(child.session_id))
        # One that is woken has begun before, and may have been given answers.
        if facts.schedule_to_start is not None and start.woken is None:
            await check_begun(child.handle, facts, self.has_started)
        return await child.handle


def _find_suspension(task: "asyncio.Task[SessionResult]", call: SuspendedCall) -> SuspendedCall | None:
    """What a session waits for that has ended; None if it runs, or has come to its end."""
    if not task.done() or task.cancelled() or task.exception() is not None:
        return None
    return remaining_wait(task.result(), call)


async def _await_child(child: _Child, task: "asyncio.Task[SessionResult]") -> None:
    """Wait for the child's end; a cancel is passed on, and its end waited for within bounds."""
    cancelled = False
    while not task.done():
        try:
            limit = STOP_SECONDS if cancelled else None
            await workflow.wait_condition(task.done, timeout=limit)
        except asyncio.CancelledError:
            cancelled = True
            child.cancel()
        except TimeoutError:
            task.cancel()
            break
    if cancelled:
        if task.done():
            task.exception()  # what became of it is nobody's any more
        raise asyncio.CancelledError


async def _wait_until_free(child: _Child, facts: ToolFacts, name: str) -> bool:
    """Wait until the session may be free; false if it is held for too long, or nobody wants it any more.

    After a reset the execution that has it is our own, of the earlier timeline, and its work counts.  Only a
    thread that continues may be somebody else's.
    """
    if child.held_since is None:
        child.held_since = workflow.now()
    ours = facts.thread != "continue"
    limit = (facts.schedule_to_close if ours else None) or HELD_SECONDS
    pause = HELD_PAUSES[min(child.pauses, len(HELD_PAUSES) - 1)]
    child.pauses += 1
    try:
        await workflow.wait_condition(lambda: child.cancelled, timeout=pause)
    except TimeoutError:
        child.cancelled = workflow.now() - child.held_since > timedelta(seconds=limit)
    if child.cancelled and ours:
        await _cancel_other(name)
    return not child.cancelled


async def _start_child(
    facts: ToolFacts, start: SessionInput, limit: float | None, name: str
) -> "workflow.ChildWorkflowHandle[Any, SessionResult]":
    found = workflow.info().typed_search_attributes
    return await workflow.start_child_workflow(
        SESSION_WORKFLOW,
        start,
        id=name,
        result_type=SessionResult,
        task_queue=facts.task_queue,
        cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
        # Whoever terminates the parent wants no orphan, and a child that is asked to end saves and archives.
        parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
        execution_timeout=timedelta(seconds=limit) if limit else None,
        search_attributes=found if len(found) else None,
        static_summary=facts.name,
    )


async def _cancel_other(name: str) -> None:
    other = workflow.get_external_workflow_handle(name)
    try:
        await other.cancel()
    except FailureError:
        return  # it has ended meanwhile


async def _pass_on(child: _Child, name: str) -> None:
    if child.handle is None and child.held_since is None:
        return  # once it has started
    if child.handle is None or not child.handle.done():
        await signal_workflow(name, "interrupt")
