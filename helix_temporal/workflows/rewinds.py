"""Requests to take turns back: they wait for the end of the turn, and are carried out one by one."""

from dataclasses import dataclass
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError

from helix_temporal.errors import HeadMovedError, HelixError
from helix_temporal.models.handles import (
    PlanTakeBackInput,
    PlanTakeBackResult,
    TakeBackRequest,
    TakeBackResult,
)
from helix_temporal.models.records import Head
from helix_temporal.models.sessions import ReopenHeads, RewindResult, UserMessage
from helix_temporal.models.steps import OpenSessionResult
from helix_temporal.session.inbox import Inbox
from helix_temporal.workflows.calls import TemporalCalls
from helix_temporal.workflows.ending import describe_failure
from helix_temporal.workflows.opening import (
    CurrentThread,
    open_conversation,
    remembered_if_unclear,
    reopen_thread,
)


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
