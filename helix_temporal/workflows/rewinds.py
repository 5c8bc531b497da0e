"""Carries out a request to take turns back: plans it, cuts the thread, and lets what is asked anew wait."""

from collections.abc import Sequence
from typing import Any

from temporalio.exceptions import ActivityError

from helix_temporal._failures import describe_failure
from helix_temporal.errors import HeadMovedError, HelixError
from helix_temporal.models.handles import PlanTakeBackInput, TakeBackRequest, TakeBackResult
from helix_temporal.models.sessions import Receipt, ReopenHeads, RewindResult
from helix_temporal.models.steps import OpenSessionResult
from helix_temporal.session.inbox import Inbox
from helix_temporal.session.rewinds import PendingRewind, RewindPlan, requeue_messages
from helix_temporal.workflows.calls import TemporalCalls
from helix_temporal.workflows.opening import (
    CurrentThread,
    open_session_thread,
    remember_if_unclear,
    reopen_thread,
)


async def carry_out_rewind(
    calls: TemporalCalls,
    thread: CurrentThread,
    inbox: Inbox,
    rewind: PendingRewind,
    lost: Sequence[Receipt] = (),
) -> OpenSessionResult | None:
    """Cut the thread as asked, and let what is asked anew wait for the next turn.

    ``lost`` is what the thread has lost and nobody was told yet.

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
            # An older copy of the thread: counted on it, the turns would be other ones than were meant.
            stood, reopened = thread.head, await reopen_thread(calls, thread, _as_it_stands(thread))
            inbox.put_first(reopened.under_way)
            if thread.head.position < stood.position:
                rewind.tells_losses = True
                raise
            plan = await _plan_take_back(calls, thread, rewind.request)
        if not plan.found.done:
            rewind.check_not_old(thread.request.thread_id, thread.seed())
            rewind.check_losses_told(thread.request.thread_id, lost)
        opened = await _cut_thread(calls, thread, rewind.request, plan) if plan.cuts else None
    except (HelixError, ActivityError) as error:
        rewind.result = RewindResult(done=False, head=thread.head, error=describe_failure(error))
        return reopened
    messages = requeue_messages(inbox, plan, cut=None if opened is None else opened.handle.head)
    if opened is not None:
        inbox.put_first(opened.under_way)
    told: dict[str, Any] = {"messages": messages} if messages else {}
    rewind.result = TakeBackResult(done=True, head=plan.head, **told)
    return opened or reopened


def _as_it_stands(thread: CurrentThread) -> ReopenHeads:
    return ReopenHeads(head=thread.head, turn_start=thread.head)


async def _plan_take_back(
    calls: TemporalCalls, thread: CurrentThread, request: TakeBackRequest
) -> RewindPlan:
    wanted = PlanTakeBackInput(
        session_id=thread.request.session_id,
        thread_id=thread.request.thread_id,
        request=request,
        head=thread.head,
    )
    return RewindPlan(await calls.plan_take_back(wanted), request.id in thread.tried)


async def _cut_thread(
    calls: TemporalCalls, thread: CurrentThread, request: TakeBackRequest, plan: RewindPlan
) -> OpenSessionResult:
    changes: dict[str, Any] = {"mode": "continue", "rewind_to": plan.found.to, "fork_from": None}
    changes |= {"take_back": plan.found.taken_back, "known_epoch": thread.handle.epoch}
    if request.checkpoint is not None:
        changes["checkpoint"] = request.checkpoint
    # Whether or not it took effect: where the thread stands then, it is opened again.
    heads, epoch, seed = _as_it_stands(thread), thread.handle.epoch, thread.seed()
    try:
        with remember_if_unclear(thread, heads):
            opened = await open_session_thread(calls, thread.request.model_copy(update=changes))
    except (HelixError, ActivityError):
        if request.id not in thread.tried:
            thread.tried = (*thread.tried, request.id)
        raise
    thread.note_opened(opened.handle, seed)
    if opened.reset:
        thread.note_reset_point(plan.found.to.position, epoch)
    return opened
