"""Calls that wait for a client, a person or a sub-agent, and their answers: state without I/O."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from helix_temporal.models.base import json_size, only_set
from helix_temporal.models.messages import ToolCall, ToolResult
from helix_temporal.models.newest import Newest
from helix_temporal.models.sessions import SuspendedTurn
from helix_temporal.models.states import Submission, is_past
from helix_temporal.models.stored_messages import Head
from helix_temporal.models.waiting import (
    NO_ANSWER,
    REMEMBERED_CALLS,
    RESUME,
    AnswerReceipt,
    CallKind,
    CallOutcome,
    PendingCall,
    SubAgentCall,
    SubmitInput,
    Suspension,
    TakenAnswer,
    WaitingCall,
    pending_below,
    pending_call,
)
from helix_temporal.session.call_answers import (
    FirstAnswer,
    error_result,
    merge_receipts,
    refuse_answer,
    result_of_answer,
)


def list_unanswered_calls(
    waiting: Iterable[WaitingCall], outcomes: Iterable[CallOutcome]
) -> list[WaitingCall]:
    """Calls that nobody has answered."""
    answered = {each.at for each in outcomes}
    return [each for each in waiting if each.at not in answered]


def list_results(outcomes: Iterable[CallOutcome]) -> dict[int, ToolResult]:
    """Results by their calls' numbers; a call that was approved has none until its tool has run."""
    return {each.at: each.result for each in outcomes if each.result is not None}


def list_unfinished_children(suspended: Suspension) -> tuple[SubAgentCall, ...]:
    """Sub-agents that still wait; one may have come to its end while other calls were wanted."""
    finished = list_results(suspended.outcomes)
    return tuple(each for each in suspended.children if each.at not in finished)


def list_pending_calls(
    head: Head, calls: Sequence[ToolCall], unanswered: Iterable[WaitingCall], below: Iterable[PendingCall]
) -> tuple[PendingCall, ...]:
    """What a session waits for whose step at ``head`` made these calls, there and below."""
    return (*(pending_call(each, calls[each.at], head.position - 1) for each in unanswered), *below)


@dataclass(frozen=True, slots=True)
class CallStart:
    """How a call's session is started: for a new call, or again after the call has waited.

    Attributes:
        call: The call as it was suspended; one that is new, or never started, has no pending calls.
        ends: Its turn is to end without answers.
        late: Its deadline has passed.
    """

    call: SubAgentCall
    ends: bool = False
    late: bool = False


def _tell_nobody() -> None:
    """Do nothing: nobody listens."""


class CallStage(StrEnum):
    """What a sub-agent's call that waits for people, or has waited, is at."""

    WAITS = "waits"
    """Its session has ended; an answer, a deadline or the end of the turn resumes it."""
    RESUMED = "resumed"
    """Its session runs again; what is still pending there can be answered meanwhile."""
    UNWANTED = "unwanted"
    """It waits, and nobody wants its result: its session is to be started once more, to end its turn."""


@dataclass(frozen=True, slots=True)
class TrackedCall:
    """A call, and what it is at."""

    call: SubAgentCall
    stage: CallStage


@dataclass(slots=True)
class SubAgentCalls:
    """The sub-agent calls of one step that wait for people, or have waited.

    A call is tracked by its name.  How it moves from stage to stage:

    | from | to | by |
    |---|---|---|
    | – | waits | `suspend_call` (its session has ended so), `restore_calls` (an earlier execution left it) |
    | waits | resumed | `resume_call`; not tracked any more if it had no questions, or is to end |
    | resumed | waits | `suspend_call` |
    | resumed | – | `finish_call`, `forget_resumed` |
    | waits | unwanted | `finish_call`: it has a result although it waits, since its tool is gone |
    | resumed | unwanted | `abandon_call`: it has ended to wait once more, when its turn was cut |
    | unwanted | – | `dismiss_unwanted`, at the end of the execution at the latest |
    | any | – | `dismiss_all`, at the end of the turn |

    Attributes:
        clock: Milliseconds since 1970, the same on replay.
        ending: All are to end without answers.
        in_order: The step's calls run one after the other, in call order.
        news: Set when a call of the step may go on.
        on_child_waits: Called when one waits for something new.
        on_expired: Called with a call below that nobody answered in time.
    """

    clock: Callable[[], int]
    ending: bool = False
    in_order: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)
    on_child_waits: Callable[[], None] = _tell_nobody
    on_expired: Callable[[PendingCall], None] = lambda _: None
    _tracked: dict[str, TrackedCall] = field(default_factory=dict)
    _unsent: list[tuple[str, TakenAnswer]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._list_at(CallStage.WAITS))

    # -- waiting

    def suspend_call(self, call: SubAgentCall) -> None:
        """Keep a call whose session has ended because it waits for people."""
        ids_before = {each.id for each in self.list_pending()}
        before = self._remove(CallStage.RESUMED, call.at)
        if before is not None:
            call = call.model_copy(update={"answers": before.answers}).with_calls(call.calls)
            self._note_expired(before, call.calls)
        self._track(call, CallStage.WAITS)
        if call.answers:
            self.news.set()
        if any(each.id not in ids_before for each in call.pending()):
            self.on_child_waits()

    def restore_calls(self, calls: Iterable[SubAgentCall]) -> None:
        """Keep the suspended calls that an earlier execution has left, and no others."""
        for each in self._list_at(CallStage.WAITS):
            del self._tracked[each.call]
        for each in calls:
            self._track(each, CallStage.WAITS)

    def list_calls(self) -> tuple[SubAgentCall, ...]:
        """All suspended calls, in call order."""
        return tuple(sorted(self._list_at(CallStage.WAITS), key=lambda each: each.at))

    def is_waiting(self, at: int) -> bool:
        """Whether this call waits, or is about to be resumed."""
        return self._find(CallStage.WAITS, at) is not None

    def must_wait(self, at: int) -> bool:
        """Whether the call may not run now: it waits for people, or is behind a call that does."""
        if self.ending:
            return False
        call = self._find(CallStage.WAITS, at)
        return self._is_behind(at) or (call is not None and not self._may_resume(call))

    def is_suspended(self, session_id: str) -> bool:
        """Whether that session waits for people."""
        return any(each.calls and each.session_id == session_id for each in self._list_at(CallStage.WAITS))

    def list_pending(self) -> tuple[PendingCall, ...]:
        """Calls that people still have to answer, with the route to each; also those of resumed sessions."""
        return pending_below((*self.list_calls(), *self._list_at(CallStage.RESUMED)))

    def seconds_left(self) -> float | None:
        """Seconds until a deadline, also of a question, resumes the first of them; None if none does."""
        times = [time for call in self._resumed_by_time() for time in _deadlines_of(call)]
        return max((min(times) - self.clock()) / 1000, 0.0) if times else None

    def find_due_time(self) -> int | None:
        """The earliest deadline of the suspended calls themselves, not of their questions; None if none."""
        times = [time for call in self._resumed_by_time() for time in (call.until, call.due)]
        return min((each for each in times if each is not None), default=None)

    # -- answers

    def add_answer(self, answer: TakenAnswer) -> None:
        """Keep an answer to a call that is pending below: it resumes the session, or is sent to it."""
        for tracked in [*self._tracked.values()]:
            call = tracked.call
            if all(each.id != answer.request.call for each in call.calls):
                continue
            if tracked.stage is CallStage.WAITS:
                self._keep_answer(tracked, answer)
                self.news.set()
            elif tracked.stage is CallStage.RESUMED:
                self._keep_answer(tracked, answer)
                self._unsent.append((call.session_id, answer))

    def resume_all(self, answer: TakenAnswer) -> None:
        """Resume all suspended sessions: each looks whether it can go on."""
        for tracked in [*self._tracked.values()]:
            if tracked.stage is CallStage.WAITS and tracked.call.calls:
                self._keep_answer(tracked, answer)
                self.news.set()

    def drain_unsent_answers(self) -> list[tuple[str, TakenAnswer]]:
        """Return the answers that running sessions are still to be sent, each once.

        The calls keep them, too, until their sessions have ended.
        """
        unsent, self._unsent = self._unsent, []
        return unsent

    # -- resumed

    def end_all(self) -> None:
        """End all: nobody needs to answer any more."""
        self.ending = True
        self.news.set()

    def resume_call(self, at: int) -> CallStart | None:
        """Resume a suspended call: how its session is started; None if the call was not suspended."""
        call = self._remove(CallStage.WAITS, at)
        if call is None:
            return None
        late = is_past(call.until, self.clock())
        if call.calls and not (self.ending or late):
            given = {each.request.call for each in call.answers}
            left = tuple(each for each in call.calls if each.id not in given)
            if RESUME in given:
                # Its session looks for answers elsewhere: whether one came in time is not known here.
                left = tuple(each.model_copy(update={"until": None}) for each in left)
            self._track(call.model_copy(update={"calls": left, "answers": ()}), CallStage.RESUMED)
        return CallStart(call, ends=self.ending, late=late)

    def finish_call(self, at: int) -> None:
        """Forget a call that has its result.

        If its session still waits, since the agent has the tool no longer, that session is to be ended.
        """
        self.forget_resumed(at)
        call = self._remove(CallStage.WAITS, at)
        if call is not None and call.calls:
            self._track(call, CallStage.UNWANTED)

    def forget_resumed(self, at: int) -> None:
        """Forget a resumed call whose session has ended, and does not wait again."""
        before = self._remove(CallStage.RESUMED, at)
        if before is not None:
            self._note_expired(before, ())

    def abandon_call(self, call: SubAgentCall) -> None:
        """Keep a call that waits although nobody wants its result any more: its session is to be ended."""
        self._remove(CallStage.RESUMED, call.at)
        self._track(call, CallStage.UNWANTED)

    def dismiss_all(self) -> tuple[SubAgentCall, ...]:
        """Forget all calls; returns those whose sessions have a turn to end."""
        gone = (*self.dismiss_unwanted(), *(each for each in self.list_calls() if each.calls))
        self._tracked, self._unsent, self.ending = {}, [], False
        return gone

    def dismiss_unwanted(self) -> tuple[SubAgentCall, ...]:
        """Return the calls whose sessions are to be ended although the turn goes on, each once."""
        gone = tuple(self._list_at(CallStage.UNWANTED))
        for each in gone:
            del self._tracked[each.call]
        return gone

    # -- how

    def _track(self, call: SubAgentCall, stage: CallStage) -> None:
        self._tracked.pop(call.call, None)  # the newest comes last
        self._tracked[call.call] = TrackedCall(call, stage)

    def _list_at(self, stage: CallStage) -> list[SubAgentCall]:
        return [each.call for each in self._tracked.values() if each.stage is stage]

    def _find(self, stage: CallStage, at: int) -> SubAgentCall | None:
        return next((each for each in self._list_at(stage) if each.at == at), None)

    def _remove(self, stage: CallStage, at: int) -> SubAgentCall | None:
        call = self._find(stage, at)
        if call is not None:
            del self._tracked[call.call]
        return call

    def _keep_answer(self, tracked: TrackedCall, answer: TakenAnswer) -> None:
        call = tracked.call.model_copy(update={"answers": (*tracked.call.answers, answer)})
        self._tracked[call.call] = replace(tracked, call=call)

    def _note_expired(self, before: SubAgentCall, left: Iterable[PendingCall]) -> None:
        still = {each.id for each in left}
        for each in before.pending():
            if each.id not in still and is_past(each.until, self.clock()):
                self.on_expired(each)

    def _resumed_by_time(self) -> list[SubAgentCall]:
        """Calls that a deadline may resume; one behind another has to let that go on first."""
        return [
            each for each in self._list_at(CallStage.WAITS) if each.calls and not self._is_behind(each.at)
        ]

    def _is_behind(self, at: int) -> bool:
        others = self._list_at(CallStage.WAITS) if self.in_order else ()
        return any(each.at < at and not self._may_resume(each) for each in others)

    def _may_resume(self, call: SubAgentCall) -> bool:
        if not call.calls:
            return not self.is_suspended(call.session_id)
        return bool(call.answers) or any(is_past(each, self.clock()) for each in _deadlines_of(call))


def _deadlines_of(call: SubAgentCall) -> list[int]:
    times = [call.until, call.due, *(each.until for each in call.calls)]
    return [each for each in times if each is not None]


@dataclass(slots=True)
class UnattendedCalls:
    """The calls of a step that waits for no person itself; a sub-agent among them may."""

    count: int
    sub_agent_calls: SubAgentCalls
    _found: dict[int, ToolResult] = field(default_factory=dict)

    def list_runnable(self) -> list[int]:
        """Calls that may run now."""
        return [
            at for at in range(self.count) if at not in self._found and not self.sub_agent_calls.must_wait(at)
        ]

    def add_result(self, at: int, result: ToolResult) -> None:
        """Keep the result of a call."""
        self._found[at] = result

    def results(self) -> dict[int, ToolResult]:
        """Results of the calls, as far as they are known."""
        return dict(self._found)

    def list_outcomes(self) -> tuple[CallOutcome, ...]:
        """Results that are known, in call order."""
        return tuple(CallOutcome(at=at, result=self._found[at]) for at in sorted(self._found))


_CLOCK_SKEW_MS: Final = 60_000
"""Milliseconds by which the clocks of workers and of the server may differ."""


class PendingCalls:
    """What one session waits for: calls of its own, and of its sub-agents.

    Args:
        clock: Milliseconds since 1970, the same on replay.
        remembered: Calls that were answered before.
        unsaved: Ids of those that are calls of sub-agents and that no step has saved yet.

    Attributes:
        suspended: The turn whose newest step waits; None while nothing does.
        sub_agent_calls: The turn's suspended calls of sub-agents.
        rounds: How often a step, or a sub-agent, began to wait.
        on_step_waits: Called when a step begins to wait.
        on_child_waits: Called when a sub-agent does.
        on_found_answered: Called with the ids of calls whose answers the turn finds in the thread.
    """

    def __init__(
        self,
        clock: Callable[[], int],
        remembered: Sequence[AnswerReceipt] = (),
        unsaved: Sequence[str] = (),
    ) -> None:
        self._clock = clock
        self.sub_agent_calls = SubAgentCalls(
            clock, on_child_waits=self._note_wait_below, on_expired=self._remember_expired
        )
        self.suspended: SuspendedTurn | None = None
        self.rounds = 0
        self.on_step_waits: Callable[[], None] = _tell_nobody
        self.on_child_waits: Callable[[], None] = _tell_nobody
        self.on_found_answered: Callable[[Iterable[str]], None] = lambda _: None
        self._unsaved = dict.fromkeys(unsaved)
        self._outcomes: dict[int, CallOutcome] = {}
        self._before: SuspendedTurn | None = None
        self._memory = _newest_receipts(remembered)
        self._early = Newest[str, TakenAnswer](REMEMBERED_CALLS)

    # -- the step that waits

    def begin_wait(self, turn: SuspendedTurn, *, shift_deadlines: bool = False) -> None:
        """Begin to wait for the calls of a step; for the step that waits already, only outcomes are added.

        Args:
            turn: Suspended by its newest step.
            shift_deadlines: Count deadlines from now where the worker's clock is far from the server's; not
                for a turn that was found suspended.
        """
        new = self.suspended is None or self.suspended.head != turn.head
        if new:
            self._outcomes = {}
            self.sub_agent_calls.restore_calls(turn.children)
        if self.suspended is not None and not new:
            turn = turn.model_copy(update={"waiting": self.suspended.waiting})
        elif shift_deadlines:
            turn = turn.model_copy(update={"waiting": tuple(self._from_now(each) for each in turn.waiting)})
        self.suspended = turn
        for each in turn.outcomes:
            self._record_outcome(each)
        self._apply_early_answers()
        if new:
            self.rounds += 1
            self.on_step_waits()

    def end_wait(self) -> None:
        """Stop waiting for the step's calls."""
        if self.suspended is not None:
            self._before = self._with_outcomes(self.suspended)
        self.suspended, self._outcomes = None, {}

    def restore_at(self, head: Head) -> SuspendedTurn | None:
        """The turn suspended at ``head``; one whose wait ended there, and went no further, waits again."""
        before = self._before
        if self.suspended is None and before is not None and before.head == head:
            self.suspended, self._outcomes = before, {each.at: each for each in before.outcomes}
        return self.suspended if self.suspended is not None and self.suspended.head == head else None

    def list_outcomes(self) -> tuple[CallOutcome, ...]:
        """What is known of the step's calls, in call order."""
        return tuple(self._outcomes[at] for at in sorted(self._outcomes))

    def results(self) -> dict[int, ToolResult]:
        """Results of the step's calls, as far as they are known."""
        return list_results(self._outcomes.values())

    def get_receipts(self) -> Mapping[int, AnswerReceipt]:
        """How the calls that waited were answered."""
        return {at: each.answered for at, each in self._outcomes.items() if each.answered is not None}

    def add_result(self, at: int, result: ToolResult) -> None:
        """Keep the result of a tool that has run."""
        before = self._outcomes.get(at)
        answered = only_set(answered=None if before is None else before.answered)
        self._outcomes[at] = CallOutcome(at=at, result=result, **answered)

    @property
    def inline_size(self) -> int:
        """Bytes, as JSON, of answers that are not payloads: one input of the next step has them all."""
        below = [each.request for call in self.sub_agent_calls.list_calls() for each in call.answers]
        inline: list[ToolResult | SubmitInput] = [*self.results().values(), *below]
        return sum(json_size([each.text, each.parts]) for each in inline)

    def list_runnable(self) -> list[int]:
        """Calls of the step that may run now: those that wait for nobody, and the approved ones."""
        if self.suspended is None:
            return []
        taken = {*(each.at for each in self._unanswered_calls()), *self.results()}
        calls = range(len(self.suspended.calls))
        return [at for at in calls if at not in taken and not self.sub_agent_calls.must_wait(at)]

    @property
    def ready(self) -> bool:
        """Whether the turn can do anything: a call may run, or all have their results."""
        waits = self._unanswered_calls() or self.sub_agent_calls
        return self.suspended is not None and (bool(self.list_runnable()) or not waits)

    # -- answers

    def list_call_ids(self) -> tuple[str, ...]:
        """Ids of the step's calls that wait for an answer, or have got one."""
        return tuple(each.id for each in self._waiting_calls())

    def knows_call(self, call: str) -> bool:
        """Whether the call waits, here or below, or was answered."""
        own = any(each.id == call for each in self._waiting_calls())
        return own or call in self._memory or self.has_below(call)

    def has_below(self, call: str) -> bool:
        """Whether a sub-agent waits for an answer to this call."""
        return any(each.id == call for each in self.sub_agent_calls.list_pending())

    def kind_wanted(self, call: str) -> CallKind | None:
        """The kind of answer that this call, here or below, waits for; None if it waits for none."""
        now = self._clock()
        wanted = (each for each in self.list_pending() if not is_past(each.until, now))
        return next((each.kind for each in wanted if each.id == call), None)

    def submit_answer(self, request: SubmitInput, when: int | None = None) -> Submission:
        """Accept the first answer to a call; a later one is told when the first one came.

        Args:
            request: The answer, to a call of this session or of one below it.
            when: When the root has accepted it; None for now.
        """
        now = self._clock() if when is None else when
        call = next((each for each in self._waiting_calls() if each.id == request.call), None)
        below = next((each for each in self.sub_agent_calls.list_pending() if each.id == request.call), None)
        pending = call or below
        if call is not None:
            before = self.get_receipts().get(call.at)
        else:
            # If a sub-agent asks again, its thread has lost the answer that we remember.
            before = None if below is not None else self._memory.get(request.call)
        refusal = refuse_answer(
            None if before is None else FirstAnswer(before.outcome, before.when, before.by),
            is_known=pending is not None,
            deadline=None if pending is None else pending.until,
            now=now,
            by=request.by,
        )
        if refusal is not None:
            if before is None and call is not None:
                self._expire_call(call, now)
            return refusal
        receipt = AnswerReceipt(
            id=request.call, when=now, **only_set(outcome=request.outcome, by=request.by or None)
        )
        if call is None:
            self._remember_below(receipt)
            self.sub_agent_calls.add_answer(TakenAnswer(request=request, when=now))
        else:
            result = result_of_answer(
                call.kind, request.outcome, request.text, parts=request.parts, ref=request.ref
            )
            self._record_outcome(CallOutcome(at=call.at, answered=receipt, **only_set(result=result)))
            self.sub_agent_calls.news.set()
        return Submission(status="submitted", completed_at=now)

    def receive_answer(self, answer: TakenAnswer) -> None:
        """Receive an answer that the root has accepted; if no call waits for it yet, keep it until one does.

        The thread may have lost the question; then the turn asks it once more.
        """
        if answer.request.call == RESUME:
            self.sub_agent_calls.resume_all(answer)
            return
        self._undo_expiry(answer)
        if self.submit_answer(answer.request, answer.when).status == "not_pending":
            self._early[answer.request.call] = answer

    def _undo_expiry(self, answer: TakenAnswer) -> None:
        """Let a call wait again that expired here although the root had accepted its answer in time."""
        call = next((each for each in self._waiting_calls() if each.id == answer.request.call), None)
        if call is None or is_past(call.until, answer.when):
            return
        before = self.get_receipts().get(call.at)
        if before is not None and before.outcome == "expired":
            del self._outcomes[call.at]
            self._memory.pop(call.id, None)

    def expire_calls(self) -> None:
        """Give up calls whose deadline has passed."""
        now = self._clock()
        for call in self._unanswered_calls():
            if is_past(call.until, now):
                self._expire_call(call, now)

    def give_up_calls(self, why: str) -> None:
        """Give each call without a result an error: nobody is to answer any more, and nothing more runs."""
        now = self._clock()
        for call in self._waiting_calls():
            before = self.get_receipts().get(call.at)
            answered = before or AnswerReceipt(id=call.id, outcome="error", when=now)
            if call.at not in self.results():
                self._record_outcome(CallOutcome(at=call.at, result=error_result(why), answered=answered))
        # Also those behind a sub-agent that is resumed to end: they would run after it.
        for at in range(len(self.suspended.calls) if self.suspended else 0):
            if at not in self.results() and not self.sub_agent_calls.is_waiting(at):
                self._record_outcome(CallOutcome(at=at, result=error_result(why)))

    def seconds_left(self) -> float | None:
        """Seconds until the first deadline of a call, here or below; None if there is none."""
        first = min((each.until for each in self._unanswered_calls() if each.until is not None), default=None)
        own = None if first is None else max((first - self._clock()) / 1000, 0.0)
        times = (own, self.sub_agent_calls.seconds_left())
        return min((each for each in times if each is not None), default=None)

    def list_pending(self) -> tuple[PendingCall, ...]:
        """The calls that still need an answer, here and below, as clients see them."""
        turn, below = self.suspended, self.sub_agent_calls.list_pending()
        if turn is None:
            return below
        return list_pending_calls(turn.head, turn.calls, self._unanswered_calls(), below)

    def remember_answers(self, answered: Sequence[AnswerReceipt]) -> None:
        """Remember the receipts of calls that were answered before."""
        self._memory = _newest_receipts(merge_receipts(self._memory.values(), answered))
        self._drop_forgotten()

    def note_found_answers(self, answered: Sequence[AnswerReceipt]) -> None:
        """Remember calls of the turn under way whose answers the thread has, and report them."""
        self.remember_answers(answered)
        self.on_found_answered(each.id for each in answered)

    def list_unsaved_answers(self) -> tuple[AnswerReceipt, ...]:
        """Receipts of sub-agents' calls that the next step is to save in the record."""
        return tuple(self._memory[each] for each in self._unsaved)

    def mark_saved(self, answered: Sequence[AnswerReceipt]) -> None:
        """Note that a step has saved these receipts in the record."""
        for each in answered:
            self._unsaved.pop(each.id, None)

    def carry_over(self) -> dict[str, Any]:
        """The fields of `Carried` that the next run needs."""
        turn = self.suspended and self._with_outcomes(self.suspended)
        receipts, unsaved = tuple(self._memory.values()), tuple(self._unsaved)
        return only_set(
            suspended=turn,
            answered_calls=receipts or None,
            unsaved_answers=unsaved or None,
            early_answers=tuple(self._early.values()) or None,
        )

    def build_suspension(self) -> Suspension | None:
        """The suspension for the record, if sub-agents are suspended: no step has stored that."""
        if self.suspended is None or not self.sub_agent_calls:
            return None
        calls = {"calls": self.suspended.waiting or None, "outcomes": self.list_outcomes() or None}
        return Suspension(
            head=self.suspended.head, children=self.sub_agent_calls.list_calls(), **only_set(**calls)
        )

    def build_save_fields(self) -> dict[str, Any]:
        """The fields that the end of an execution saves."""
        answered = tuple(self._memory.values()) if self._unsaved else ()
        return {
            "outcomes": self.list_outcomes() or None,
            "suspended": self.build_suspension(),
            "answered": answered,
        }

    # -- how

    def _with_outcomes(self, turn: SuspendedTurn) -> SuspendedTurn:
        children = (
            {"children": self.sub_agent_calls.list_calls()} if self.sub_agent_calls or turn.children else {}
        )
        return turn.model_copy(update={"outcomes": self.list_outcomes(), **children})

    def _from_now(self, call: WaitingCall) -> WaitingCall:
        now = self._clock()
        if abs(now - call.since) < _CLOCK_SKEW_MS:
            return call
        until = {} if call.until is None else {"until": now + call.until - call.since}
        return call.model_copy(update={"since": now, **until})

    def _waiting_calls(self) -> tuple[WaitingCall, ...]:
        return () if self.suspended is None else self.suspended.waiting

    def _unanswered_calls(self) -> list[WaitingCall]:
        return list_unanswered_calls(self._waiting_calls(), self._outcomes.values())

    def _expire_call(self, call: WaitingCall, now: int) -> None:
        answered = AnswerReceipt(id=call.id, outcome="expired", when=now)
        self._record_outcome(CallOutcome(at=call.at, result=error_result(NO_ANSWER), answered=answered))

    def _record_outcome(self, call: CallOutcome) -> None:
        self._outcomes[call.at] = call
        if call.answered is not None:
            self._remember_newest(call.answered)

    def _remember_below(self, answered: AnswerReceipt) -> None:
        self._unsaved[answered.id] = None
        self._remember_newest(answered)

    def _remember_expired(self, call: PendingCall) -> None:
        self._remember_below(AnswerReceipt(id=call.id, outcome="expired", when=call.until or 0))

    def _note_wait_below(self) -> None:
        self._apply_early_answers()
        self.rounds += 1
        self.on_child_waits()

    def _apply_early_answers(self) -> None:
        wanted = {each.id for each in self.list_pending()}
        for call in [each for each in self._early if each in wanted]:
            answer = self._early.pop(call)
            self.submit_answer(answer.request, answer.when)

    def _remember_newest(self, answered: AnswerReceipt) -> None:
        self._memory[answered.id] = answered
        self._drop_forgotten()

    def _drop_forgotten(self) -> None:
        """A receipt that is not remembered any more is not saved either."""
        self._unsaved = dict.fromkeys(each for each in self._unsaved if each in self._memory)


def _newest_receipts(receipts: Iterable[AnswerReceipt]) -> Newest[str, AnswerReceipt]:
    return Newest(REMEMBERED_CALLS, ((each.id, each) for each in receipts))
