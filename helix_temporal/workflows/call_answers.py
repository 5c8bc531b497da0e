"""Takes answers to calls that wait, for a session and those below it; `session.call_answers` is the rule."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from temporalio import workflow

from helix_temporal.errors import InvalidRequestError
from helix_temporal.models.base import canonical_json, check_json, check_text, json_size
from helix_temporal.models.limits import MAX_ERROR_TEXT, MAX_INLINE_RESULTS, MAX_UPDATE_TEXT
from helix_temporal.models.messages import check_size
from helix_temporal.models.sessions import SessionInput, SubmitReply
from helix_temporal.models.states import Submission
from helix_temporal.models.waiting import (
    RESUME,
    PayloadRef,
    SubmitInput,
    TakenAnswer,
    Wake,
    check_outcome,
    is_foreign_ref,
)
from helix_temporal.session.inbox import AskAgain, TurnOutcome
from helix_temporal.session.next_work import Work
from helix_temporal.workflows.execution import Execution, ask_again, update_refusal
from helix_temporal.workflows.sub_agents import SubAgents


class Submissions:
    """Takes answers for one session and those below it; a root's workflow is their only writer.

    The session of a sub-agent has its answers from its caller: with its start, or by a signal while it runs.
    """

    def __init__(self, execution: Execution, input: SessionInput, now: datetime, children: SubAgents) -> None:
        self._execution, self._session_id, self._parent = execution, input.session_id, input.parent
        self._began, self._opens, self._children = now, input.carried is None, children

    def register(self) -> None:
        """Make the update, and the caller's signal, known to the workflow."""
        workflow.set_update_handler("submit_tool_result", self._on_submit, validator=self._check_submit)
        workflow.set_signal_handler("take_answer", self._on_take_answer)

    def receive_early_answers(self, wake: Wake) -> None:
        """Receive the answers that the session was started with, before it looks which calls have expired."""
        for each in wake.answers:
            if each.request.call != RESUME:
                self._execution.pending_calls.receive_answer(each)

    def apply_wake(self, wake: Wake) -> None:
        """Do what else the session was started again for, once it is open."""
        if (wake.ends or self._execution.interrupted) and self._execution.is_suspended:
            self._execution.stopping = "interrupt"
        for each in wake.answers:
            if each.request.call == RESUME:
                self._execution.pending_calls.receive_answer(each)

    async def _on_take_answer(self, *given: Any) -> None:
        # Read here: what somebody else sends would fail every later workflow task.
        answer = _read_answer(given)
        if answer is not None:
            self._execution.pending_calls.receive_answer(answer)
            await self._children.send_answers()

    def _check_submit(self, request: SubmitInput) -> None:
        if self._parent is not None:
            raise InvalidRequestError(
                f"session {self._session_id!r} is a sub-agent's: its calls are answered at session "
                f"{self._parent.root_session_id!r}"
            )
        self._check_kind(request)
        limit = MAX_UPDATE_TEXT if request.outcome == "result" else MAX_ERROR_TEXT
        check_size(
            len(request.text.encode(errors="surrogatepass")), limit, f"text of a tool {request.outcome}"
        )
        check_text(request.text, "text")
        if request.parts is not None:
            check_json(request.parts, "parts")
            check_size(len(canonical_json(request.parts)), MAX_UPDATE_TEXT, "parts of a tool's result")
        size = self._execution.pending_calls.inline_size + json_size([request.text, request.parts])
        check_size(size, MAX_INLINE_RESULTS, "results of one step that were not put aside")
        if request.ref is not None and is_foreign_ref(request.ref):
            raise InvalidRequestError("ref: the name of a payload expected, not that of a message")

    def _check_kind(self, request: SubmitInput) -> None:
        """Refuse an answer that is not of the kind that the call wants, as far as the call is known here.

        Raises:
            InvalidRequestError: It is of another kind.
        """
        kind = self._execution.pending_calls.kind_wanted(request.call)
        if kind is not None:
            check_outcome(request.call, kind, request.outcome)

    async def _on_submit(self, request: SubmitInput) -> SubmitReply:
        execution, looks = self._execution, self._comes_with_start
        await workflow.wait_condition(lambda: execution.closing or self._knows_call(request.call))
        if request.call == RESUME and not looks and await self._is_about_to_end(request):
            # It does not look into the session store any more; the next execution does.
            raise ask_again()
        execution.refuse_if_closing()
        execution.check_not_expired(self._session_id)
        self._refuse_other_kinds(request)
        rounds, turn = execution.pending_calls.rounds, self._turn_of(request.call)
        submission = await self._submit_answer(request)
        if not request.wait or submission.status != "submitted" or turn is None:
            return SubmitReply(submission=submission)
        await workflow.wait_condition(lambda: turn.result is not None or self._is_waiting_again(rounds))
        result = turn.result or execution.build_suspended_result(in_thread=True)
        if isinstance(result, AskAgain):
            raise ask_again()
        return SubmitReply(submission=submission, result=result)

    async def _submit_answer(self, request: SubmitInput) -> Submission:
        pending_calls = self._execution.pending_calls
        if request.call == RESUME:
            pending_calls.sub_agent_calls.resume_all(TakenAnswer(request=request))
            return Submission(status="not_pending")
        if request.ref is not None and pending_calls.has_below(request.call):
            # It was put aside for this session's thread, and is read by another.
            thread_id = self._execution.opened_thread.request.thread_id
            request = request.model_copy(
                update={"ref": PayloadRef(thread_id=thread_id, name=request.ref).as_ref()}
            )
        submission = pending_calls.submit_answer(request)
        await self._children.send_answers()
        return submission

    @property
    def _comes_with_start(self) -> bool:
        """Whether the session is opened only after what comes now: it comes in the first activation."""
        return self._opens and workflow.now() == self._began

    async def _is_about_to_end(self, request: SubmitInput) -> bool:
        """Whether the execution ends while its turn waits, once that has nothing else to do."""
        execution = self._execution
        if not execution.exits_while_waiting or execution.closing:
            return False
        if execution.turn is not None:
            await self._submit_answer(request)  # whatever else is at work beside them
        await workflow.wait_condition(lambda: execution.closing or execution.turn is None)
        return execution.is_suspended and not execution.inbox

    def _turn_of(self, call: str) -> TurnOutcome | None:
        """The outcome of the turn that waits for the call, or did; None if this execution did not have it."""
        execution = self._execution
        under_way = execution.turn is not None or execution.pending_calls.suspended is not None
        if under_way and execution.pending_calls.has_below(call):
            return execution.inbox.turn_outcome
        return execution.inbox.turn_of(call)

    def _refuse_other_kinds(self, request: SubmitInput) -> None:
        """As the validator, which did not know the calls of a session that was not open yet.

        Raises:
            ApplicationError: An `InvalidRequestError`, as an update tells it.
        """
        try:
            self._check_kind(request)
        except InvalidRequestError as error:
            raise update_refusal(error) from error

    def _knows_call(self, call: str) -> bool:
        """Whether the call is known, or no turn is left that could still ask for it, as after a reset."""
        execution = self._execution
        if execution.thread is None:
            return False
        if execution.pending_calls.knows_call(call) or execution.pending_calls.suspended is not None:
            return True
        return execution.turn is None and (not execution.inbox or execution.inbox.waits_for_archive)

    def _is_waiting_again(self, rounds: int) -> bool:
        """Whether the turn waits again, for something else, or still waits for other answers."""
        execution = self._execution
        if execution.pending_calls.rounds > rounds or execution.waits_below:
            return True
        return execution.is_suspended and execution.next_work in {Work.WAIT, Work.END}


def _read_answer(given: Sequence[Any]) -> TakenAnswer | None:
    """The answer that a caller's signal brings; None for a signal of anybody else's."""
    try:
        (only,) = given
        return TakenAnswer.model_validate(only)
    except ValueError as error:
        workflow.logger.warning("a signal brought no answer: %s", type(error).__name__)
        return None
