"""Sub-agents: each call of an agent tool is a child workflow, started, awaited and stopped here."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection
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

from helix_temporal._futures import discard_error
from helix_temporal.errors import AgentNotServedError
from helix_temporal.models.agents import ToolFacts
from helix_temporal.models.ids import SESSION_WORKFLOW, workflow_id
from helix_temporal.models.messages import Usage, UserMessage
from helix_temporal.models.sessions import ArchiveMode, SessionInput, SessionResult
from helix_temporal.models.steps import OpenSessionInput, ToolInput, ToolResult
from helix_temporal.models.waiting import MAX_DEPTH, HasStartedInput, ParentLink, SubAgentCall
from helix_temporal.session.pending_calls import CallStart, SubAgentCalls
from helix_temporal.session.sub_agents import (
    END_SECONDS,
    add_usage,
    child_options,
    child_result,
    describe_lateness,
    ending_call_input,
    facts_of,
    failed_call_result,
    interrupted_result,
    late_result,
    new_call_input,
    plan_call,
    refusal_result,
    remaining_wait,
    resumed_call_input,
    seconds_left,
    task_message,
    with_call_facts,
)
from helix_temporal.telemetry.ids import SpanRef, derive_call
from helix_temporal.workflows.clock import now_ms

HasStarted = Callable[[HasStartedInput], Awaitable[bool]]
"""Tells whether a worker has begun with an execution, and ends one that none has begun with."""


async def await_begun(
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


async def signal_workflow(to: str, name: str, *arguments: object) -> None:
    """Signal a workflow; nothing if it has ended."""
    with contextlib.suppress(FailureError):
        await workflow.get_external_workflow_handle(to).signal(name, args=arguments)


def failure_result(
    failure: FailureError, facts: ToolFacts, session_id: str, workflow: str, before: Usage | None = None
) -> ToolResult:
    """The result of a call whose session failed, or could not be started."""
    cause = failure.cause if isinstance(failure, ChildWorkflowError) and failure.cause else failure
    used = None
    status: Literal["interrupted", "failed"] = "failed"
    if isinstance(cause, WorkflowAlreadyStartedError):
        why = f"is busy: its session {session_id!r} is held by another execution, workflow {workflow!r}"
    elif isinstance(cause, TimedOutError):
        why = describe_lateness(facts)
    elif isinstance(cause, TerminatedError):
        why = "was terminated"
    elif isinstance(cause, CancelledError):
        why, status = "was cancelled before it had an answer", "interrupted"
    else:
        why, used = f"failed: {getattr(cause, 'message', type(cause).__name__)}", _used_before(cause)
    killed = isinstance(cause, TimedOutError | TerminatedError)
    return failed_call_result(
        f"The sub-agent {why}.", session_id, status, add_usage(used, before), killed=killed
    )


def _used_before(cause: BaseException) -> Usage | None:
    """What a session used before it failed: its result travels with the failure."""
    details = cause.details if isinstance(cause, ApplicationError) else ()
    if not details or not isinstance(details[0], dict):
        return None
    try:
        return SessionResult.model_validate(details[0]).used
    except ValidationError:
        return None


HELD_PAUSES: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds between attempts to start a session that has a live execution already."""
HELD_SECONDS: Final = 60.0
"""How long to wait for a session that another execution has."""
STOP_SECONDS: Final = 300.0
"""How long a child that was asked to end is waited for; it has been asked, and ends all the same.

Unlike `END_SECONDS` it ends no execution: only the wait.
"""


@dataclass(slots=True, eq=False)
class _Child:
    """One call's child.

    Attributes:
        handle: Once it has started.
        given_up: Nobody waits for it any more: by request, or another execution had its session for too long.
        interrupted: Asked for, perhaps before it had started.
        busy_since, pauses: Another execution has its session, and how often that was waited for.
    """

    session_id: str
    handle: "workflow.ChildWorkflowHandle[Any, SessionResult] | None" = None
    run: "asyncio.Task[SessionResult] | None" = None
    given_up: bool = False
    interrupted: bool = False
    busy_since: datetime | None = None
    pauses: int = 0

    def cancel(self) -> None:
        """Ask it to end, once."""
        if self.handle is not None and not self.given_up:
            self.handle.cancel()
        self.given_up = True


def _with_caller(message: UserMessage, request: ToolInput, result_id: str) -> UserMessage:
    """The task with the span of the call, whose id is derived: whoever records that span comes later."""
    root = SpanRef.parse(request.traceparent)
    if root is None or request.run_id is None:
        return message
    call = derive_call(root, request.session_id, request.run_id, result_id)
    return message.model_copy(update={"traceparent": call.traceparent})


@dataclass(slots=True)
class SubAgents:
    """The sub-agents of one session.

    Attributes:
        parent: Whose sub-agent the session itself is.
        sub_agent_calls: Calls whose sessions have ended, since they wait.
        has_started: Whether anybody serves a session.
        workflow_id: The workflow id of a session of the same deployment.
        cut: Sessions of calls that were cut off, for the session store.
        archive: As in `SessionOptions`; theirs, too.
    """

    parent: ParentLink | None
    sub_agent_calls: SubAgentCalls
    has_started: HasStarted
    workflow_id: Callable[[str], str] = workflow_id
    cut: list[str] = field(default_factory=list)
    archive: ArchiveMode | None = None
    _running: list[_Child] = field(default_factory=list)
    _interrupted: str | None = None
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)

    @property
    def any_running(self) -> bool:
        """Whether the session of a sub-agent runs, or ends a turn that nobody wants any more."""
        return bool(self._running)

    async def run(self, facts: ToolFacts, request: ToolInput) -> ToolResult | SubAgentCall:
        """Run one call to the sub-agent's answer; whatever becomes of it is a result for the model.

        One whose session has ended, since it waits for people, goes on from there once it is called again.
        A cancel is passed on to the child, which is then waited for.
        """
        call = plan_call(facts, request, now_ms())
        link = self._build_parent_link(request.session_id, call.call)
        if link.depth > MAX_DEPTH:
            return refusal_result(call.session_id, f"agents call each other {MAX_DEPTH} deep at most")
        message = task_message(facts, request, call.call)
        if message is None:
            return refusal_result(call.session_id, f"{facts.argument!r} must be a text that says what to do")
        message = _with_caller(message, request, call.call)
        async with self._lock_thread(facts, call.session_id):
            resumed = self.sub_agent_calls.resume_call(call.at)
            options = child_options(self.archive)
            if resumed is not None and resumed.call.calls:
                start = resumed_call_input(resumed, request, message, link, options)
                return await self._follow_child(facts, start, resumed)
            if self.sub_agent_calls.is_suspended(call.session_id):
                self.sub_agent_calls.suspend_call(call)
                return call
            if self._is_interrupted(request, resumed):
                return interrupted_result(call.session_id)
            start = new_call_input(facts, request, call, message, link, options)
            return await self._follow_child(facts, start, CallStart(call))

    async def send_answers(self) -> None:
        """Signal answers to sub-agents that run; `SubAgentCalls` keeps each until its session has ended."""
        for session_id, answer in self.sub_agent_calls.drain_unsent_answers():
            await signal_workflow(self.workflow_id(session_id), "take_answer", answer)

    def dismiss_calls(self, request: OpenSessionInput) -> None:
        """Let suspended sessions end their turns, which nobody wants; `wait_until_ended` waits for that."""
        for call in self.sub_agent_calls.dismiss_all():
            self._end_suspended(call, request)

    def _end_suspended(self, call: SubAgentCall, request: OpenSessionInput) -> None:
        self.cut.append(call.session_id)
        link = self._build_parent_link(request.session_id, call.call)
        start, child = ending_call_input(call, link, request.metadata), _Child(call.session_id)
        task = self._begin_child(child, facts_of(call), start, END_SECONDS)
        task.add_done_callback(lambda done: self._release_dismissed(child, done))

    def _release_dismissed(self, child: _Child, task: "asyncio.Task[SessionResult]") -> None:
        discard_error(task)
        self._running.remove(child)

    def _is_interrupted(self, request: ToolInput, resumed: CallStart | None) -> bool:
        turn = request.run_id is not None and request.run_id == self._interrupted
        return turn or (resumed is not None and resumed.ends)

    async def interrupt_turn(self, run_id: str) -> None:
        """Let each child of this turn end after its present step, and none begin."""
        self._interrupted = run_id
        self.sub_agent_calls.end_all()
        for child in tuple(self._running):
            child.interrupted = True
            await _pass_on(child, self.workflow_id(child.session_id))

    async def wait_until_ended(
        self, on_cancel: Callable[[], None], request: OpenSessionInput, *, cut: bool
    ) -> None:
        """Wait until no child runs; cancels meanwhile are remembered.

        Those that are suspended end their turns first: all if the caller's turn is ``cut``, else those whose
        results nobody wants.  The next execution knows nothing of these.
        """
        while True:
            if cut:
                self.dismiss_calls(request)
            else:
                for call in self.sub_agent_calls.dismiss_unwanted():
                    self._end_suspended(call, request)
            if not self._running:
                return
            try:
                await workflow.wait_condition(lambda: not self._running)
            except asyncio.CancelledError:
                on_cancel()

    def forget_cut(self, told: Collection[str]) -> None:
        """Forget calls that the session store has marked as cut off."""
        self.cut = [each for each in self.cut if each not in told]

    def _lock_thread(self, facts: ToolFacts, session_id: str) -> AbstractAsyncContextManager[object]:
        """Calls of one continuing thread are served one after the other."""
        if facts.thread != "continue":
            return contextlib.nullcontext()
        return self._locks.setdefault(session_id, asyncio.Lock())

    def _build_parent_link(self, session_id: str, call: str) -> ParentLink:
        parent = self.parent
        return ParentLink(
            session_id=session_id,
            root_session_id=parent.root_session_id if parent else session_id,
            call=call,
            depth=parent.depth + 1 if parent else 1,
        )

    async def _follow_child(
        self, facts: ToolFacts, start: SessionInput, resumed: CallStart
    ) -> ToolResult | SubAgentCall:
        call, child = resumed.call, _Child(start.session_id)
        limit = seconds_left(facts, start, call, now_ms())
        task = self._begin_child(child, facts, start, limit)
        try:
            await _await_child(child, task)
            suspended = _find_wait(task, call)
            if suspended is not None:
                self.sub_agent_calls.suspend_call(suspended)
                return suspended
        except asyncio.CancelledError:
            suspended = _find_wait(task, call)
            if suspended is None:
                self.cut.append(child.session_id)
                self.sub_agent_calls.forget_resumed(call.at)
            else:
                # It had ended before it could be asked to.
                self.sub_agent_calls.abandon_call(suspended)
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
        if child.given_up:
            child.handle.cancel()
        elif child.interrupted:
            await _pass_on(child, self.workflow_id(child.session_id))
        # One that is woken has begun before, and may have been given answers.
        if facts.schedule_to_start is not None and start.woken is None:
            await await_begun(child.handle, facts, self.has_started)
        return await child.handle


def _find_wait(task: "asyncio.Task[SessionResult]", call: SubAgentCall) -> SubAgentCall | None:
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
            discard_error(task)
        raise asyncio.CancelledError


async def _wait_until_free(child: _Child, facts: ToolFacts, name: str) -> bool:
    """Wait until the session may be free; false if it is held for too long, or nobody wants it any more.

    After a reset the execution that has it is our own, of the earlier timeline, and its work counts.  Only a
    thread that continues may be somebody else's.
    """
    if child.busy_since is None:
        child.busy_since = workflow.now()
    ours = facts.thread != "continue"
    limit = (facts.schedule_to_close if ours else None) or HELD_SECONDS
    pause = HELD_PAUSES[min(child.pauses, len(HELD_PAUSES) - 1)]
    child.pauses += 1
    try:
        await workflow.wait_condition(lambda: child.given_up, timeout=pause)
    except TimeoutError:
        child.given_up = workflow.now() - child.busy_since > timedelta(seconds=limit)
    if child.given_up and ours:
        await _cancel_other(name)
    return not child.given_up


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
    if child.handle is None and child.busy_since is None:
        return  # once it has started
    if child.handle is None or not child.handle.done():
        await signal_workflow(name, "interrupt")
