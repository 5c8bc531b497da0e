"""Answers to pending calls: the update by which clients and people give them."""

import asyncio
from datetime import datetime
from typing import Final

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from helix_temporal.errors import InvalidRequestError
from helix_temporal.models._json import canonical, check_json, check_text
from helix_temporal.models.children import ChildPending, RoutedReply, RoutedSubmit, Wake, is_message_ref
from helix_temporal.models.messages import check_size
from helix_temporal.models.sessions import AskResult, AskStatus, SessionInput, SubmitReply
from helix_temporal.models.states import MAX_ERROR_TEXT, Submission
from helix_temporal.models.suspensions import RESUME, SubmitInput, check_outcome
from helix_temporal.workflows._child_waits import reply_to
from helix_temporal.workflows._inbox import Outcome
from helix_temporal.workflows._live import MAX_TEXT_BYTES, Live

_KINDS: Final = "answers-are-of-the-kind-wanted"
_LOOKS: Final = "resumed-sessions-look"
_OWN_TURN: Final = "told-of-the-turn-that-was-answered"
MAX_HELD_BYTES: Final = 1024 * 1024
"""Of results that are not put aside: together they are in the input of one step, which has 2 MB at most."""


class Submissions:
    """Takes answers for one session, and those below it; the workflow of each is their only writer."""

    def __init__(self, live: Live, input: SessionInput, now: datetime) -> None:
        self._live, self._session_id = live, input.session_id
        self._handing, self._began, self._opens = 0, now, input.carried is None

    @property
    def handled(self) -> bool:
        """Nobody who came with the start, or since, waits for us."""
        return not self._handing and workflow.all_handlers_finished()

    async def hand_over(self, wake: Wake) -> None:
        """Do what the session was woken for, if it is still suspended; until there is something to do."""
        ends = wake.ends or self._live.interrupted
        if ends and self._live.is_suspended:
            self._live.stopping = "interrupt"
        self._handing = len(wake.submits)
        for routed in wake.submits:
            task = asyncio.create_task(self._on_submit_for(routed))
            task.add_done_callback(self._handed)
        await workflow.wait_condition(lambda: not self._handing or self._live.has_messages)

    def _handed(self, task: "asyncio.Task[None]") -> None:
        self._handing -= 1
        if not task.cancelled() and task.exception() is not None:
            workflow.logger.warning("an answer could not be handed over: %s", task.exception())

    def register(self) -> None:
        """Make the update known to the workflow."""
        workflow.set_update_handler("submit_tool_result", self._on_submit, validator=self._check)
        workflow.set_signal_handler("child_pending", self._on_child_pending)
        workflow.set_signal_handler("tell_parent", self._live.below.tell_again)
        workflow.set_signal_handler("submit_for", self._on_submit_for)
        workflow.set_signal_handler("submitted", self._on_submitted)

    def _check(self, request: SubmitInput) -> None:
        self._check_kind(request)
        limit = MAX_TEXT_BYTES if request.outcome == "result" else MAX_ERROR_TEXT
        check_size(
            len(request.text.encode(errors="surrogatepass")), limit, f"text of a tool {request.outcome}"
        )
        check_text(request.text, "text")
        held = self._live.waits.held + len(request.text.encode())
        if request.parts is not None:
            check_json(request.parts, "parts")
            size = len(canonical(request.parts))
            check_size(size, MAX_TEXT_BYTES, "parts of a tool's result")
            held += size
        check_size(held, MAX_HELD_BYTES, "results of one step that were not put aside")
        if request.ref is not None and is_message_ref(request.ref):
            raise InvalidRequestError("ref: the name of a payload expected, not that of a message")

    def _check_kind(self, request: SubmitInput) -> None:
        """Refuse an answer that is not of the kind that the call wants, as far as the call is known here.

        Raises:
            InvalidRequestError: It is of another kind.
        """
        kind = self._live.waits.kind_wanted(request.call) or self._live.below.kind_wanted(request.call)
        if kind is not None:
            check_outcome(request.call, kind, request.outcome)

    async def _on_submit(self, request: SubmitInput) -> SubmitReply:
        looks = self._comes_with_start
        await self._ready_for(request)
        if request.call == RESUME and not looks and await self._is_about_to_end(request):
            # It does not look into the session store any more; the next execution does.
            return SubmitReply()
        if not self._live.closing:
            self._live.check_not_expired(self._session_id)
        return await self._take(request, checked=False)

    @property
    def _comes_with_start(self) -> bool:
        """Whether the session is opened only after what comes now: it comes in the first activation."""
        return self._opens and workflow.now() == self._began

    async def _is_about_to_end(self, request: SubmitInput) -> bool:
        """Whether the execution ends while its turn waits, once that has nothing else to do."""
        live = self._live
        if not live.leaves or live.closing or not workflow.patched(_LOOKS):
            return False
        if live.turn is not None:
            live.below.wake_all(request)  # whatever else is at work beside them
        await workflow.wait_condition(lambda: live.closing or live.turn is None)
        return live.is_suspended and not live.stays_suspended

    async def _ready_for(self, request: SubmitInput) -> None:
        await workflow.wait_condition(lambda: self._live.closing or self._knows(request.call))

    async def _take(self, request: SubmitInput, *, checked: bool = True) -> SubmitReply:
        live = self._live
        await self._ready_for(request)
        if live.closing:
            return self._ending()
        if not checked:
            self._refuse_other_kinds(request)
        if request.call == RESUME:
            live.below.wake_all(request)
        rounds, turn = live.rounds, self._turn_of(request.call)
        submission = live.waits.submit(request)
        if submission.status == "not_pending" and live.below.has(request.call):
            routed = await live.below.submit(request, live.open.request.thread_id, lambda: live.closing)
            if routed is None:
                return SubmitReply()
            submission = routed
        if not request.wait or submission.status != "submitted":
            return SubmitReply(submission=submission)
        if not workflow.patched(_OWN_TURN):
            await workflow.wait_condition(
                lambda: live.closing or self._is_any_over() or self._waits_on(rounds)
            )
            return self._reply_of_any(submission)
        if turn is None:
            return SubmitReply(submission=submission)
        await workflow.wait_condition(lambda: turn.result is not None or self._waits_on(rounds))
        result = turn.result or live.suspended(in_thread=True)
        if result.status is AskStatus.MOVED:
            return SubmitReply()
        return SubmitReply(submission=submission, result=result)

    def _turn_of(self, call: str) -> Outcome | None:
        """Of the turn that waits for the call, or did; None where this execution did not have it."""
        live = self._live
        under_way = live.turn is not None or live.waits.turn is not None
        if under_way and live.below.has(call):
            return live.inbox.turn
        return live.inbox.turn_of(call)

    def _refuse_other_kinds(self, request: SubmitInput) -> None:
        """As the validator, which did not know the calls of a session that was not open yet.

        Raises:
            ApplicationError: An `InvalidRequestError`, as an update tells it.
        """
        try:
            self._check_kind(request)
        except InvalidRequestError as error:
            if workflow.patched(_KINDS):
                raise ApplicationError(str(error), type=type(error).__name__, non_retryable=True) from error

    def _ending(self) -> SubmitReply:
        why = self._live.unopened
        if why is None:
            return SubmitReply()
        return SubmitReply(result=AskResult(status=AskStatus.FAILED, error=why))

    def _reply_of_any(self, submission: Submission) -> SubmitReply:
        """For histories of before `_OWN_TURN`: of whichever turn ended last."""
        live = self._live
        if live.closing and live.turn is not None:
            if live.rested:
                return SubmitReply()
            interrupted = AskResult(status=AskStatus.INTERRUPTED, exit_reason=live.exit)
            return SubmitReply(submission=submission, result=interrupted)
        if live.waits.turn is not None or live.waits_below:
            return SubmitReply(submission=submission, result=live.suspended(in_thread=True))
        return SubmitReply(submission=submission, result=live.inbox.told)

    def _knows(self, call: str) -> bool:
        """Whether the call is known, or all that might ask for it has: a reset may have taken us back."""
        live = self._live
        if live.talk is None:
            return False
        if live.waits.knows(call) or live.below.has(call) or live.waits.turn is not None:
            return True
        return live.turn is None and (not live.inbox or live.inbox.held)

    def _waits_on(self, rounds: int) -> bool:
        """The turn under way waits for something else, or still waits for others."""
        live = self._live
        if live.rounds > rounds or live.waits_below:
            return True
        return live.is_suspended and not live.has_messages

    def _is_any_over(self) -> bool:
        """For histories of before `_OWN_TURN`: no turn runs or waits."""
        return self._live.waits.turn is None and self._live.turn is None

    # -- between a root and those below it

    def _on_child_pending(self, told: ChildPending) -> None:
        self._live.below.hear(told)
        for each in told.expired:
            if not self._live.waits.knows(each.id):
                self._live.waits.remember_below(each)

    async def _on_submit_for(self, routed: RoutedSubmit) -> None:
        reply = await self._take(routed.request)
        await reply_to(routed, reply.submission)

    def _on_submitted(self, reply: RoutedReply) -> None:
        answered = self._live.below.take_reply(reply)
        if answered is not None:
            self._live.waits.remember_below(answered)
