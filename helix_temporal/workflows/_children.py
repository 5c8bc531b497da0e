"""Sub-agents: each call of an agent tool is a child workflow, started, awaited and stopped here."""

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from temporalio import workflow
from temporalio.exceptions import FailureError, WorkflowAlreadyStartedError

from helix_temporal.models.agents import ToolFacts
from helix_temporal.models.children import (
    MAX_DEPTH,
    MessageRef,
    ParentLink,
    call_of,
    child_session_id,
    task_of,
)
from helix_temporal.models.ids import workflow_id
from helix_temporal.models.messages import are_left_out
from helix_temporal.models.sessions import (
    ForkFrom,
    SessionInput,
    SessionOptions,
    SessionResult,
    UserMessage,
)
from helix_temporal.models.steps import ToolInput, ToolResult
from helix_temporal.workflows._child_ends import called, failed, interrupted, outcome, refused
from helix_temporal.workflows._child_waits import ChildWaits, signal

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
class Children:
    """The sub-agents of one session.

    Attributes:
        parent: Whose sub-agent the session itself is.
        waits: What they wait for.
        cut: Sessions of calls that were cut off, for the session store.
    """

    parent: ParentLink | None = None
    waits: ChildWaits = field(default_factory=ChildWaits)
    cut: list[str] = field(default_factory=list)
    _running: list[_Child] = field(default_factory=list)
    _interrupted: str | None = None
    _turns: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def run(self, facts: ToolFacts, request: ToolInput) -> ToolResult:
        """Run one call to the sub-agent's answer; whatever becomes of it is a result for the model.

        A cancel is passed on to the child, which is then waited for.
        """
        call = call_of(request.key)
        child = _Child(child_session_id(request.session_id, facts.name, facts.thread, call))
        link = self._link(request, call)
        if link.depth > MAX_DEPTH:
            return refused(child.session_id, f"agents call each other {MAX_DEPTH} deep at most")
        message = _message(facts, request, call)
        if message is None:
            return refused(child.session_id, f"{facts.argument!r} must be a text that says what to do")
        start = _start(facts, request, child.session_id, message, link)
        async with self._alone(facts, child.session_id):
            if request.run_id is not None and request.run_id == self._interrupted:
                return interrupted(child.session_id)
            return await self._follow(child, facts, start)

    async def interrupt(self, run_id: str) -> None:
        """Let each child of this turn end after its present step, and none begin."""
        self._interrupted = run_id
        for child in tuple(self._running):
            child.interrupted = True
            await _pass_on(child)

    async def ended(self, on_cancel: Callable[[], None]) -> None:
        """Wait until no child runs; cancels meanwhile are remembered."""
        while self._running:
            try:
                await workflow.wait_condition(lambda: not self._running)
            except asyncio.CancelledError:
                on_cancel()

    def taken_cut(self) -> tuple[str, ...]:
        """Sessions of calls that were cut off since this was asked last."""
        cut, self.cut = tuple(self.cut), []
        return cut

    def _alone(self, facts: ToolFacts, session_id: str) -> AbstractAsyncContextManager[object]:
        """Calls of one continuing thread are served one after the other."""
        if facts.thread != "continue":
            return contextlib.nullcontext()
        return self._turns.setdefault(session_id, asyncio.Lock())

    def _link(self, request: ToolInput, call: str) -> ParentLink:
        parent = self.parent
        return ParentLink(
            session_id=request.session_id,
            root_session_id=parent.root_session_id if parent else request.session_id,
            call=call,
            depth=parent.depth + 1 if parent else 1,
        )

    async def _follow(self, child: _Child, facts: ToolFacts, start: SessionInput) -> ToolResult:
        began = workflow.now()
        self._running.append(child)
        task = child.run = asyncio.create_task(_execute(child, facts, start, self.waits))
        try:
            await _awaited(child, task)
        except asyncio.CancelledError:
            self.cut.append(child.session_id)
            raise
        finally:
            self._running.remove(child)
            run = None if child.handle is None else child.handle.first_execution_run_id
            self.waits.gone(child.session_id, run)
        try:
            result = outcome(task.result(), facts)
        except FailureError as failure:
            result = failed(failure, facts, child.session_id)
        return called(result, facts, workflow.now() - began)


async def _awaited(child: _Child, task: "asyncio.Task[SessionResult]") -> None:
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


async def _execute(child: _Child, facts: ToolFacts, start: SessionInput, waits: ChildWaits) -> SessionResult:
    """Start the child, once no other execution has its session, and wait for its result.

    Raises:
        FailureError: It failed, or somebody else has the session.
    """
    while True:
        try:
            child.handle = await _started(facts, start)
        except WorkflowAlreadyStartedError:
            if not await _free(child, facts, waits):
                raise
            continue
        break
    if child.cancelled:
        child.handle.cancel()
    elif child.interrupted:
        await _pass_on(child)
    return await child.handle


async def _free(child: _Child, facts: ToolFacts, waits: ChildWaits) -> bool:
    """Wait until the session may be free; false if it is held for too long, or nobody wants it any more.

    After a reset the execution that has it is our own, of the earlier timeline: its work counts, and it
    says so when asked.
    """
    if child.held_since is None:
        child.held_since = workflow.now()
        await waits.ask(child.session_id)
    ours = facts.thread != "continue" or waits.hears(child.session_id)
    limit = (facts.schedule_to_close if ours else None) or HELD_SECONDS
    heard = waits.heard(child.session_id)
    pause = HELD_PAUSES[min(child.pauses, len(HELD_PAUSES) - 1)]
    child.pauses += 1
    try:
        await workflow.wait_condition(
            lambda: child.cancelled or waits.heard(child.session_id) != heard, timeout=pause
        )
        child.pauses = 0
    except TimeoutError:
        child.cancelled = child.cancelled or workflow.now() - child.held_since > timedelta(seconds=limit)
    if child.cancelled and ours:
        await _cancel_other(child)
    return not child.cancelled


async def _started(
    facts: ToolFacts, start: SessionInput
) -> "workflow.ChildWorkflowHandle[Any, SessionResult]":
    found = workflow.info().typed_search_attributes
    limit = facts.schedule_to_close
    return await workflow.start_child_workflow(
        SESSION_WORKFLOW,
        start,
        id=workflow_id(start.session_id),
        result_type=SessionResult,
        task_queue=facts.task_queue,
        cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
        # Whoever terminates the parent wants no orphan, and a child that is asked to end saves and archives.
        parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
        execution_timeout=timedelta(seconds=limit) if limit else None,
        search_attributes=found if len(found) else None,
        static_summary=facts.name,
    )


async def _cancel_other(child: _Child) -> None:
    other = workflow.get_external_workflow_handle(workflow_id(child.session_id))
    try:
        await other.cancel()
    except FailureError:
        return  # it has ended meanwhile


async def _pass_on(child: _Child) -> None:
    if child.handle is None and child.held_since is None:
        return  # once it has started
    if child.handle is None or not child.handle.done():
        await signal(workflow_id(child.session_id), "interrupt")


def _message(facts: ToolFacts, request: ToolInput, call: str) -> UserMessage | None:
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


def _start(
    facts: ToolFacts, request: ToolInput, session_id: str, message: UserMessage, link: ParentLink
) -> SessionInput:
    fields: dict[str, Any] = {}
    if facts.thread == "fork":
        # What is finished is all before the turn that asks: no call without its result is copied.
        fields = {"mode": "fork", "fork_from": ForkFrom(thread_id=request.thread_id)}
    if request.metadata:
        fields["metadata"] = request.metadata
    return SessionInput(
        session_id=session_id,
        agent=facts.agent or "",
        # What an earlier call left unanswered must not hold up a new one.
        options=SessionOptions(persistent=False, while_suspended="supersede"),
        messages=(message,),
        parent=link,
        **fields,
    )
