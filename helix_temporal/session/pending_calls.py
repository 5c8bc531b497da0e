"""Calls that wait for a client, a person or a sub-agent: their answers, and earlier ones.  Pure."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
    """How a call's session is started: anew, or once more after it has waited.

    Attributes:
        call: As it waited; without pending calls where it is new.
        ends: It is to end without answers.
        late: Its time is over.
    """

    call: SubAgentCall
    ends: bool = False
    late: bool = False


def _tell_nobody() -> None:
    """Nobody is told."""


@dataclass(slots=True)
class SubAgentCalls:
    """Calls of sub-agents of one step, once one of them has waited for people.

    While a call waits, its session's workflow has ended.  It is resumed by an answer, by its deadline, or by
    the end of the turn.  One that was resumed is remembered until its session has ended, with what it
    still waits for.

    Attributes:
        clock: Milliseconds since 1970, the same on replay.
        ending: All are to end without answers.
        in_order: A call is not made before the one before it has its result.
        news: Set when one of them, or another call of the step, may go on.
        on_child_waits: Told when one waits for something new.
        on_expired: Told of a call below that nobody answered in time.
    """

    clock: Callable[[], int]
    ending: bool = False
    in_order: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)
    on_child_waits: Callable[[], None] = _tell_nobody
    on_expired: Callable[[PendingCall], None] = lambda _: None
    _waiting: dict[int, SubAgentCall] = field(default_factory=dict)
    _running: dict[int, SubAgentCall] = field(default_factory=dict)
    _unsent: list[tuple[str, TakenAnswer]] = field(default_factory=list)
    _unwanted: list[SubAgentCall] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    # -- waiting

    def suspend_call(self, call: SubAgentCall) -> None:
        """This call's session has ended, and waits."""
        ids_before = {each.id for each in self.list_pending()}
        before = self._running.pop(call.at, None)
        if before is not None:
            call = call.model_copy(update={"answers": before.answers}).with_calls(call.calls)
            self._note_expired(before, call.calls)
        self._waiting[call.at] = call
        if call.answers:
            self.news.set()
        if any(each.id not in ids_before for each in call.pending()):
            self.on_child_waits()

    def restore_calls(self, calls: Iterable[SubAgentCall]) -> None:
        """Those that another execution has left."""
        self._waiting = {each.at: each for each in calls}

    def list_calls(self) -> tuple[SubAgentCall, ...]:
        """All, in call order."""
        return tuple(self._waiting[at] for at in sorted(self._waiting))

    def is_waiting(self, at: int) -> bool:
        """Whether this call waits, or is about to be resumed."""
        return at in self._waiting

    def must_wait(self, at: int) -> bool:
        """Whether the call may not run now: it waits, or is behind one that does."""
        if self.ending:
            return False
        call = self._waiting.get(at)
        return self._is_behind(at) or (call is not None and not self._may_resume(call))

    def is_suspended(self, session_id: str) -> bool:
        """Whether that session waits for people."""
        return any(each.calls and each.session_id == session_id for each in self._waiting.values())

    def list_pending(self) -> tuple[PendingCall, ...]:
        """What they still wait for, with the way to each; also those that run again."""
        return pending_below((*self.list_calls(), *self._running.values()))

    def seconds_left(self) -> float | None:
        """Until the first of them may go on although nobody has answered."""
        times = [time for call in self._resumed_by_time() for time in _deadlines_of(call)]
        return max((min(times) - self.clock()) / 1000, 0.0) if times else None

    def find_due_time(self) -> int | None:
        """When the first of their calls, here and below, has used up its time."""
        times = [time for call in self._resumed_by_time() for time in (call.until, call.due)]
        return min((each for each in times if each is not None), default=None)

    # -- answers

    def add_answer(self, answer: TakenAnswer) -> None:
        """An answer to a call that is pending below: its session is resumed, or is sent it while it runs."""
        wanted = answer.request.call
        for at, call in self._waiting.items():
            if any(each.id == wanted for each in call.calls):
                self._waiting[at] = _with_answer(call, answer)
                self.news.set()
        for at, call in self._running.items():
            if any(each.id == wanted for each in call.calls):
                self._running[at] = _with_answer(call, answer)
                self._unsent.append((call.session_id, answer))

    def resume_all(self, answer: TakenAnswer) -> None:
        """Let all of them look whether they can go on."""
        for at, call in self._waiting.items():
            if call.calls:
                self._waiting[at] = _with_answer(call, answer)
                self.news.set()

    def drain_unsent_answers(self) -> list[tuple[str, TakenAnswer]]:
        """Answers for sessions that run.  Each is kept until its session has ended without that call."""
        unsent, self._unsent = self._unsent, []
        return unsent

    # -- resumed

    def end_all(self) -> None:
        """Nobody needs to answer any more."""
        self.ending = True
        self.news.set()

    def resume_call(self, at: int) -> CallStart | None:
        """The call goes on; None if it was not suspended."""
        call = self._waiting.pop(at, None)
        if call is None:
            return None
        late = is_past(call.until, self.clock())
        if call.calls and not (self.ending or late):
            given = {each.request.call for each in call.answers}
            left = tuple(each for each in call.calls if each.id not in given)
            self._running[at] = call.model_copy(update={"calls": left, "answers": ()})
        return CallStart(call, ends=self.ending, late=late)

    def finish_call(self, at: int) -> None:
        """The call has its result.  One that still waits has it without its session: the tool is gone."""
        self.forget_resumed(at)
        call = self._waiting.pop(at, None)
        if call is not None and call.calls:
            self._unwanted.append(call)

    def forget_resumed(self, at: int) -> None:
        """The session that was resumed has ended otherwise than by waiting again."""
        before = self._running.pop(at, None)
        if before is not None:
            self._note_expired(before, ())

    def abandon_call(self, call: SubAgentCall) -> None:
        """Its session has ended, and waits, when nobody wanted its result any more."""
        self._running.pop(call.at, None)
        self._unwanted.append(call)

    def dismiss_all(self) -> tuple[SubAgentCall, ...]:
        """Forget them all; those that have a turn to be ended."""
        gone = (*self._unwanted, *(each for each in self.list_calls() if each.calls))
        self._waiting, self._running, self._unsent, self._unwanted, self.ending = {}, {}, [], [], False
        return gone

    def _note_expired(self, before: SubAgentCall, left: Iterable[PendingCall]) -> None:
        still = {each.id for each in left}
        for each in before.pending():
            if each.id not in still and is_past(each.until, self.clock()):
                self.on_expired(each)

    def _resumed_by_time(self) -> list[SubAgentCall]:
        """Calls that a deadline may resume; one behind another has to let that go on first."""
        return [each for each in self._waiting.values() if each.calls and not self._is_behind(each.at)]

    def _is_behind(self, at: int) -> bool:
        others = self._waiting.items() if self.in_order else ()
        return any(before < at and not self._may_resume(call) for before, call in others)

    def _may_resume(self, call: SubAgentCall) -> bool:
        if not call.calls:
            return not self.is_suspended(call.session_id)
        return bool(call.answers) or any(is_past(each, self.clock()) for each in _deadlines_of(call))


def _with_answer(call: SubAgentCall, answer: TakenAnswer) -> SubAgentCall:
    return call.model_copy(update={"answers": (*call.answers, answer)})


@dataclass(slots=True)
class UnattendedCalls:
    """The calls of a step that asks no person.  A sub-agent among them may come back waiting."""

    count: int
    sub_agent_calls: SubAgentCalls
    _found: dict[int, ToolResult] = field(default_factory=dict)

    def list_runnable(self) -> list[int]:
        """Calls that may run now."""
        return [
            at for at in range(self.count) if at not in self._found and not self.sub_agent_calls.must_wait(at)
        ]

    def add_result(self, at: int, result: ToolResult) -> None:
        """A call has its result."""
        self._found[at] = result

    def results(self) -> dict[int, ToolResult]:
        """Results of the calls, as far as they are known."""
        return dict(self._found)

    def list_outcomes(self) -> tuple[CallOutcome, ...]:
        """Results that are known, in call order."""
        return tuple(CallOutcome(at=at, result=self._found[at]) for at in sorted(self._found))


def _deadlines_of(call: SubAgentCall) -> list[int]:
    times = [call.until, call.due, *(each.until for each in call.calls)]
    return [each for each in times if each is not None]


_CLOCKS: Final = 60_000
"""Milliseconds by which the clocks of workers and of the server may differ."""


class PendingCalls:
    """What one session waits for: calls of its own, and of its sub-agents.

    Args:
        clock: Milliseconds since 1970, the same on replay.
        remembered: Calls that were answered before.
        unsaved: Ids of those that are calls of sub-agents and that no step has saved yet.

    Attributes:
        suspended: The turn whose newest step waits; None while nothing does.
        sub_agent_calls: Those of its calls that are sub-agents, and wait.
        rounds: How often a step, or a sub-agent, began to wait.
        on_step_waits: Told when a step begins to wait.
        on_child_waits: Told when a sub-agent does.
        on_found_answered: Told of calls, by id, that the turn under way finds answered in the thread.
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
        self._memory = OrderedDict((each.id, each) for each in remembered)
        self._early = Newest[str, TakenAnswer](REMEMBERED_CALLS)

    # -- the step that waits

    def begin_wait(self, turn: SuspendedTurn, *, found: bool = True) -> None:
        """Begin to wait for a step.  Of the one that waits already, only what is known of its calls is new.

        Where the worker's clock is far from ours, its deadlines count from now, unless it was ``found``.
        """
        new = self.suspended is None or self.suspended.head != turn.head
        if new:
            self._outcomes = {}
            self.sub_agent_calls.restore_calls(turn.children)
        if self.suspended is not None and not new:
            turn = turn.model_copy(update={"waiting": self.suspended.waiting})
        elif not found:
            turn = turn.model_copy(update={"waiting": tuple(self._from_now(each) for each in turn.waiting)})
        self.suspended = turn
        for each in turn.outcomes:
            self._record_outcome(each)
        self._apply_early_answers()
        if new:
            self.rounds += 1
            self.on_step_waits()

    def end_wait(self) -> None:
        """The step waits no more."""
        if self.suspended is not None:
            self._before = self._with_outcomes(self.suspended)
        self.suspended, self._outcomes = None, {}

    def restore_at(self, head: Head) -> SuspendedTurn | None:
        """The turn suspended at ``head``; one that was ended there and got no further is suspended again."""
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
        """A tool of the step has run."""
        before = self._outcomes.get(at)
        answered = only_set(answered=None if before is None else before.answered)
        self._outcomes[at] = CallOutcome(at=at, result=result, **answered)

    @property
    def inline_size(self) -> int:
        """Bytes, as JSON, of answers that are not put aside: they are all in one input of the next step."""
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
        """Ids of those of the step that wait for somebody, or did."""
        return tuple(each.id for each in self._waiting_calls())

    def knows_call(self, call: str) -> bool:
        """Whether the call waits, here or below, or was answered."""
        own = any(each.id == call for each in self._waiting_calls())
        return own or call in self._memory or self.has_below(call)

    def has_below(self, call: str) -> bool:
        """Whether a sub-agent waits for an answer to this call."""
        return any(each.id == call for each in self.sub_agent_calls.list_pending())

    def kind_wanted(self, call: str) -> CallKind | None:
        """Of the answer that this call, here or below, still takes; None if it takes none."""
        now = self._clock()
        wanted = (each for each in self.list_pending() if not is_past(each.until, now))
        return next((each.kind for each in wanted if each.id == call), None)

    def submit_answer(self, request: SubmitInput, when: int | None = None) -> Submission:
        """Take an answer, once; whoever comes later is told when the first one came.

        Args:
            request: The answer, to a call of this session or of one below it.
            when: When the root has taken it; None for now.
        """
        now = self._clock() if when is None else when
        call = next((each for each in self._waiting_calls() if each.id == request.call), None)
        below = next((each for each in self.sub_agent_calls.list_pending() if each.id == request.call), None)
        pending = call or below
        if call is not None:
            before = self.get_receipts().get(call.at)
        else:
            # A sub-agent that asks again has lost the answer that we remember, with a part of its thread.
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
        """Take an answer that the root has taken; where nothing asks for it yet, it waits for what does.

        The thread may have gone back to before the question, which the turn then comes to once more.
        """
        if answer.request.call == RESUME:
            self.sub_agent_calls.resume_all(answer)
            return
        self._undo_expiry(answer)
        if self.submit_answer(answer.request, answer.when).status == "not_pending":
            self._early[answer.request.call] = answer

    def _undo_expiry(self, answer: TakenAnswer) -> None:
        """A call that was given up here, although the root had taken its answer in time."""
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
        """Nobody needs to answer any more; what has not run will not."""
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
        """Until the first call counts as unanswered; None if all may wait for ever."""
        first = min((each.until for each in self._unanswered_calls() if each.until is not None), default=None)
        own = None if first is None else max((first - self._clock()) / 1000, 0.0)
        times = (own, self.sub_agent_calls.seconds_left())
        return min((each for each in times if each is not None), default=None)

    def list_pending(self) -> tuple[PendingCall, ...]:
        """What is still wanted, here and below, as clients see it."""
        turn, below = self.suspended, self.sub_agent_calls.list_pending()
        if turn is None:
            return below
        return list_pending_calls(turn.head, turn.calls, self._unanswered_calls(), below)

    def remember_answers(self, answered: Sequence[AnswerReceipt]) -> None:
        """Calls that were answered in earlier executions."""
        self._memory = OrderedDict(
            (each.id, each) for each in merge_receipts(self._memory.values(), answered)
        )
        self._forget_oldest()

    def note_found_answers(self, answered: Sequence[AnswerReceipt]) -> None:
        """Calls of the turn under way whose answers the thread has."""
        self.remember_answers(answered)
        self.on_found_answered(each.id for each in answered)

    def list_unsaved_answers(self) -> tuple[AnswerReceipt, ...]:
        """Calls of sub-agents that were answered, and that the record has with the next step."""
        return tuple(self._memory[each] for each in self._unsaved)

    def mark_saved(self, answered: Sequence[AnswerReceipt]) -> None:
        """The record has them, with a step."""
        for each in answered:
            self._unsaved.pop(each.id, None)

    def carry_over(self) -> dict[str, Any]:
        """What the next run needs."""
        turn = self.suspended and self._with_outcomes(self.suspended)
        receipts, unsaved = tuple(self._memory.values()), tuple(self._unsaved)
        return only_set(
            suspended=turn,
            answered_calls=receipts or None,
            unsaved_answers=unsaved or None,
            early_answers=tuple(self._early.values()) or None,
        )

    def build_suspension(self) -> Suspension | None:
        """What the record is to say of the turn, where sub-agents are suspended: no step could say so."""
        if self.suspended is None or not self.sub_agent_calls:
            return None
        calls = {"calls": self.suspended.waiting or None, "outcomes": self.list_outcomes() or None}
        return Suspension(
            head=self.suspended.head, children=self.sub_agent_calls.list_calls(), **only_set(**calls)
        )

    def build_save_fields(self) -> dict[str, Any]:
        """What an ending saves of it."""
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
        if abs(now - call.since) < _CLOCKS:
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
        self._memory.move_to_end(answered.id)
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        while len(self._memory) > REMEMBERED_CALLS:
            gone, _ = self._memory.popitem(last=False)
            self._unsaved.pop(gone, None)
