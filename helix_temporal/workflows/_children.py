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
from helix_temporal.models.children import MAX_DEPTH, ParentLink
from helix_temporal.models.sessions import SessionInput, SessionOptions, SessionResult
from helix_temporal.models.slices import ArchiveMode
from helix_temporal.models.steps import OpenSessionInput, ToolInput, ToolResult
from helix_temporal.models.suspensions import ChildWait
from helix_temporal.workflows._child_ends import called, failed, interrupted, late, outcome, refused, slept
from helix_temporal.workflows._child_served import TakenUp, check_begun
from helix_temporal.workflows._child_starts import (
    END_SECONDS,
    again,
    child_options,
    ending,
    facts_of,
    fresh,
    seconds_left,
    should_wait,
    task_message,
)
from helix_temporal.workflows._child_waits import ChildWaits, signal
from helix_temporal.workflows._clock import now_ms
from helix_temporal.workflows._sleepers import Woken

SESSION_WORKFLOW: Final = "helix.session"
HELD_PAUSES: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds between attempts to start a session that has a live execution already."""
HELD_SECONDS: Final = 60.0
"""How long a session is waited for that somebody else has."""
STOP_SECONDS: Final = 300.0
"""How long a child that was asked to end is waited for; it has been asked, and ends all the same."""
_HEEDS_BELOW: Final = "heeds-times-below"


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
        taken_up: Whether anybody serves a session.
        waits: What they wait for.
        cut: Sessions of calls that were cut off, for the session store.
        archive: As in `SessionOptions`; theirs, too.
    """

    parent: ParentLink | None
    taken_up: TakenUp
    waits: ChildWaits = field(default_factory=ChildWaits)
    cut: list[str] = field(default_factory=list)
    archive: ArchiveMode | None = None
    _running: list[_Child] = field(default_factory=list)
    _interrupted: str | None = None
    _turns: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def run(self, facts: ToolFacts, request: ToolInput) -> ToolResult | ChildWait:
        """Run one call to the sub-agent's answer; whatever becomes of it is a result for the model.

        One whose session has ended, since it waits for people, goes on from there once it is called again.
        A cancel is passed on to the child, which is then waited for.
        """
        wait = should_wait(facts, request, now_ms())
        link = self._link(request.session_id, wait.call)
        if link.depth > MAX_DEPTH:
            return refused(wait.session_id, f"agents call each other {MAX_DEPTH} deep at most")
        message = task_message(facts, request, wait.call)
        if message is None:
            return refused(wait.session_id, f"{facts.argument!r} must be a text that says what to do")
        async with self._alone(facts, wait.session_id):
            woken = self.waits.sleepers.wake(wait.at)
            if woken is not None and woken.wait.calls:
                start = again(woken, request, message, link, self._options())
                return await self._follow(facts, start, woken)
            if self.waits.sleepers.is_asleep(wait.session_id):
                self.waits.sleepers.sleep(wait)
                return wait
            if self._is_interrupted(request, woken):
                return interrupted(wait.session_id)
            start = fresh(facts, request, wait, message, link, self._options())
            return await self._follow(facts, start, Woken(wait))

    def dismiss(self, request: OpenSessionInput) -> None:
        """Let those that sleep end their turns, which are nobody's any more; `ended` waits for that."""
        for wait in self.waits.sleepers.dismiss():
            self.cut.append(wait.session_id)
            start = ending(wait, self._link(request.session_id, wait.call), request.metadata)
            child = _Child(wait.session_id)
            task = self._begin(child, facts_of(wait), start, END_SECONDS)
            task.add_done_callback(lambda done, child=child: self._dismissed(child, done))  # type: ignore[misc]

    def _dismissed(self, child: _Child, task: "asyncio.Task[SessionResult]") -> None:
        if not task.cancelled():
            task.exception()  # what became of it is nobody's any more
        self._gone(child)

    def _options(self) -> SessionOptions:
        # Whether their sessions are to end while they wait for people, their caller says.
        leaves = self.waits.sleepers.allowed and self.waits.sleepers.leaves()
        return child_options(exits=leaves, archive=self.archive)

    def _is_interrupted(self, request: ToolInput, woken: Woken | None) -> bool:
        turn = request.run_id is not None and request.run_id == self._interrupted
        return turn or (woken is not None and woken.ends)

    async def interrupt(self, run_id: str) -> None:
        """Let each child of this turn end after its present step, and none begin."""
        self._interrupted = run_id
        self.waits.sleepers.end_all()
        for child in tuple(self._running):
            child.interrupted = True
            await _pass_on(child, self.waits.workflow_id(child.session_id))

    async def ended(self, on_cancel: Callable[[], None], cut: OpenSessionInput | None = None) -> None:
        """Wait until no child runs; cancels meanwhile are remembered.

        Where the turn is ``cut``, those that sleep are to end theirs.
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

    def _alone(self, facts: ToolFacts, session_id: str) -> AbstractAsyncContextManager[object]:
        """Calls of one continuing thread are served one after the other."""
        if facts.thread != "continue":
            return contextlib.nullcontext()
        return self._turns.setdefault(session_id, asyncio.Lock())

    def _link(self, session_id: str, call: str) -> ParentLink:
        parent = self.parent
        return ParentLink(
            session_id=session_id,
            root_session_id=parent.root_session_id if parent else session_id,
            call=call,
            depth=parent.depth + 1 if parent else 1,
        )

    async def _follow(self, facts: ToolFacts, start: SessionInput, woken: Woken) -> ToolResult | ChildWait:
        wait, child = woken.wait, _Child(start.session_id)
        if start.woken is not None and not start.woken.ends:
            self.waits.woke(wait)
        limit = seconds_left(facts, start, wait, now_ms())
        task = self._begin(child, facts, start, limit)
        try:
            await _awaited(child, task)
            sleeps = self._slept(task, wait)
            if sleeps is not None:
                self.waits.sleeps(sleeps)
                return sleeps
        except asyncio.CancelledError:
            sleeps = self._slept(task, wait)
            if sleeps is None:
                self.cut.append(child.session_id)
            else:
                # It had ended before it could be asked to.
                self.waits.sleepers.sleep(sleeps)
            raise
        finally:
            self._gone(child)
        try:
            result = outcome(task.result(), facts, wait.used)
        except FailureError as failure:
            result = failed(
                failure, facts, child.session_id, self.waits.workflow_id(child.session_id), wait.used
            )
        if woken.late:
            result = late(facts, child.session_id, result.usage)
        return called(result, facts, timedelta(milliseconds=now_ms() - wait.since))

    def _slept(self, task: "asyncio.Task[SessionResult]", wait: ChildWait) -> ChildWait | None:
        ended = self.waits.sleepers.allowed and task.done() and not task.cancelled()
        if not ended or task.exception() is not None:
            return None
        result = task.result()
        if result.due is not None and not workflow.patched(_HEEDS_BELOW):
            result = result.model_copy(update={"due": None})
        return slept(result, wait)

    def _begin(
        self, child: _Child, facts: ToolFacts, start: SessionInput, limit: float | None
    ) -> "asyncio.Task[SessionResult]":
        self._running.append(child)
        task = child.run = asyncio.create_task(self._execute(child, facts, start, limit))
        return task

    async def _execute(
        self, child: _Child, facts: ToolFacts, start: SessionInput, limit: float | None
    ) -> SessionResult:
        """Start the child, once no other execution has its session, and wait for its result.

        Raises:
            FailureError: It failed, somebody else has the session, or nobody serves it.
        """
        while True:
            try:
                child.handle = await _started(facts, start, limit, self.waits.workflow_id(start.session_id))
            except WorkflowAlreadyStartedError:
                if not await _free(child, facts, self.waits):
                    raise
                continue
            break
        if child.cancelled:
            child.handle.cancel()
        elif child.interrupted:
            await _pass_on(child, self.waits.workflow_id(child.session_id))
        # One that is woken has begun before, and may have been given answers.
        if facts.schedule_to_start is not None and start.woken is None:
            await check_begun(child.handle, facts, self.taken_up)
        return await child.handle

    def _gone(self, child: _Child) -> None:
        self._running.remove(child)
        run = None if child.handle is None else child.handle.first_execution_run_id
        self.waits.gone(child.session_id, run)


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
        await _cancel_other(waits.workflow_id(child.session_id))
    return not child.cancelled


async def _started(
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
        await signal(name, "interrupt")
