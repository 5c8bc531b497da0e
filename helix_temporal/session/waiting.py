"""Calls that wait for a client, a person or a sub-agent: their answers, and earlier ones.  Pure."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from helix_temporal.models.base import canonical_json, only_set
from helix_temporal.models.messages import ToolResult
from helix_temporal.models.records import Head
from helix_temporal.models.sessions import SuspendedTurn
from helix_temporal.models.states import Submission, is_past
from helix_temporal.models.waiting import (
    NO_ANSWER,
    REMEMBERED_CALLS,
    AnsweredCall,
    CallKind,
    ChildWait,
    KnownCall,
    PendingCall,
    RoutedSubmit,
    SubmitInput,
    Suspension,
    WaitingCall,
    pending_below,
    pending_call,
)
from helix_temporal.session.answers import FirstAnswer, error_result, refuse_answer, result_of_answer


@dataclass(frozen=True, slots=True)
class Woken:
    """A call that may go on.

    Attributes:
        letters: Answers for its session, and those below.
        ends: It is to end without answers.
        late: Its time is over.
    """

    wait: ChildWait
    letters: tuple[RoutedSubmit, ...] = ()
    ends: bool = False
    late: bool = False


def _never_leaves() -> bool:
    return False


@dataclass(slots=True)
class Sleepers:
    """Those of one step; each is woken by an answer, by its deadline, or by the end of the turn.

    Attributes:
        clock: Milliseconds since 1970, the same on replay.
        leaves: Whether sessions of sub-agents end while they wait.
        ending: All are to end without answers.
        in_order: A call is not made before the one before it has its result.
        news: Set when one of them may go on.
    """

    clock: Callable[[], int]
    leaves: Callable[[], bool] = _never_leaves
    allowed: bool = False
    ending: bool = False
    in_order: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)
    _asleep: dict[int, ChildWait] = field(default_factory=dict)
    _letters: dict[str, list[RoutedSubmit]] = field(default_factory=dict)
    _left: list[ChildWait] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._asleep)

    def allow(self, *, parallel: bool) -> bool:
        """Whether sub-agents may sleep in the step that begins, or is gone on with."""
        self.in_order = not parallel
        self.allowed = bool(self._asleep) or self.leaves()
        return self.allowed

    # -- asleep

    def sleep(self, wait: ChildWait) -> None:
        """This call's session has ended."""
        self._asleep[wait.at] = wait

    def take_up(self, waits: Iterable[ChildWait]) -> None:
        """Those that another execution has left asleep."""
        self._asleep = {each.at: each for each in waits}

    def waits(self) -> tuple[ChildWait, ...]:
        """All, in call order."""
        return tuple(self._asleep[at] for at in sorted(self._asleep))

    def has(self, at: int) -> bool:
        """Whether this call's session sleeps, or is about to be woken."""
        return at in self._asleep

    def holds(self, at: int) -> bool:
        """Whether the call has to wait: asleep, or behind one that is."""
        if self.ending:
            return False
        wait = self._asleep.get(at)
        return self._is_behind(at) or (wait is not None and not self._may_wake(wait))

    def is_asleep(self, session_id: str) -> bool:
        """Whether that session waits for people."""
        return any(each.calls and each.session_id == session_id for each in self._asleep.values())

    def pending(self) -> tuple[PendingCall, ...]:
        """All that they wait for, with the way to each."""
        return pending_below(self.waits())

    def left(self) -> float | None:
        """Seconds until the first of them may go on although nobody has answered."""
        times = [time for wait in self._waits_woken_by_time() for time in _deadlines_of(wait)]
        return max((min(times) - self.clock()) / 1000, 0.0) if times else None

    def due(self) -> int | None:
        """When the first of their calls, here and below, has used up its time."""
        times = [time for wait in self._waits_woken_by_time() for time in (wait.until, wait.due)]
        return min((each for each in times if each is not None), default=None)

    # -- woken

    def send(self, session_id: str, letter: RoutedSubmit) -> bool:
        """Wake a session with an answer; false if it does not sleep."""
        if not self.is_asleep(session_id):
            return False
        self._letters.setdefault(session_id, []).append(letter)
        self.news.set()
        return True

    def end_all(self) -> None:
        """Nobody needs to answer any more."""
        self.ending = True
        self.news.set()

    def wake(self, at: int) -> Woken | None:
        """The call goes on; None if it did not sleep."""
        wait = self._asleep.pop(at, None)
        if wait is None:
            return None
        late = is_past(wait.until, self.clock())
        letters = self._letters.pop(wait.session_id, []) if wait.calls else []
        return Woken(wait, tuple(letters), ends=self.ending, late=late)

    def leave(self, at: int) -> None:
        """The call has its result; it has it otherwise if it still sleeps: the agent has no such tool now."""
        wait = self._asleep.pop(at, None)
        if wait is not None and wait.calls:
            self._letters.pop(wait.session_id, None)
            self._left.append(wait)

    def dismiss(self) -> tuple[ChildWait, ...]:
        """Forget them all; those that have a turn to be ended."""
        gone = (*self._left, *(each for each in self.waits() if each.calls))
        self._asleep, self._letters, self._left, self.ending = {}, {}, [], False
        return gone

    def _waits_woken_by_time(self) -> list[ChildWait]:
        """Those whose time wakes them: not that of one that waits for another to go on first."""
        return [wait for wait in self._asleep.values() if wait.calls and not self._is_behind(wait.at)]

    def _is_behind(self, at: int) -> bool:
        asleep = self._asleep.items() if self.in_order else ()
        return any(before < at and not self._may_wake(wait) for before, wait in asleep)

    def _may_wake(self, wait: ChildWait) -> bool:
        if not wait.calls:
            return not self.is_asleep(wait.session_id)
        return wait.session_id in self._letters or any(
            is_past(each, self.clock()) for each in _deadlines_of(wait)
        )


@dataclass(slots=True)
class OpenCalls:
    """Calls of a step that people answer none of, though sub-agents among them may sleep."""

    count: int
    sleepers: Sleepers
    _found: dict[int, ToolResult] = field(default_factory=dict)

    def to_run(self) -> list[int]:
        """Calls that may run now."""
        return [at for at in range(self.count) if at not in self._found and not self.sleepers.holds(at)]

    def found(self, at: int, result: ToolResult) -> None:
        """A call has its result."""
        self._found[at] = result

    def results(self) -> dict[int, ToolResult]:
        """Results of the calls, as far as they are known."""
        return dict(self._found)

    def known(self) -> tuple[KnownCall, ...]:
        """The same, in call order."""
        return tuple(KnownCall(at=at, result=self._found[at]) for at in sorted(self._found))


def _deadlines_of(wait: ChildWait) -> list[int]:
    times = [wait.until, wait.due, *(each.until for each in wait.calls)]
    return [each for each in times if each is not None]


_CLOCKS: Final = 60_000
"""Milliseconds by which the clocks of workers and of the server may differ."""


class Waits:
    """What one session waits for.

    Args:
        clock: Milliseconds since 1970, the same on replay.
        remembered: Calls that were answered before.
        unsaid: Those of them, by id, that are sub-agents', and that no step has told the slice yet.
        leaves: Whether sessions of sub-agents end while they wait.

    Attributes:
        turn: The turn whose newest step waits; None while nothing does.
        sleepers: Those of its calls that are sub-agents, and wait.
        rounds: How often a step began to wait.
        on_wait: Told of each once.
        on_known: Told of calls, by id, that the turn under way finds answered in the thread.
    """

    def __init__(
        self,
        clock: Callable[[], int],
        remembered: Sequence[AnsweredCall] = (),
        leaves: Callable[[], bool] = lambda: False,
        unsaid: Sequence[str] = (),
    ) -> None:
        self._clock = clock
        self.sleepers = Sleepers(clock, leaves)
        self.turn: SuspendedTurn | None = None
        self.rounds = 0
        self.on_wait: Callable[[], None] = _tell_nobody
        self.on_known: Callable[[Iterable[str]], None] = lambda _: None
        self._below, self._unsaid = False, dict.fromkeys(unsaid)
        self._known: dict[int, KnownCall] = {}
        self._before: SuspendedTurn | None = None
        self._memory = OrderedDict((each.id, each) for each in remembered)

    # -- the step that waits

    def begin(self, turn: SuspendedTurn, *, found: bool = True) -> None:
        """A step waits; the same step again only brings what is known of its calls.

        Where the worker's clock is far from ours, its deadlines count from now, unless it was ``found``.
        """
        new = self.turn is None or self.turn.head != turn.head
        if new:
            self._known = {}
            self.sleepers.take_up(turn.children)
        if self.turn is not None and not new:
            turn = turn.model_copy(update={"waiting": self.turn.waiting})
        elif not found:
            turn = turn.model_copy(update={"waiting": tuple(self._from_now(each) for each in turn.waiting)})
        self.turn = turn
        for each in turn.known:
            self._record_known_call(each)
        if new:
            self.rounds += 1
            self.on_wait()

    def end(self) -> None:
        """The step waits no more."""
        if self.turn is not None:
            self._before = self._with_known_calls(self.turn)
        self.turn, self._known = None, {}

    def wait_at(self, head: Head) -> SuspendedTurn | None:
        """The turn that waits there; or that did, with what is known of it, where it got no further."""
        before = self._before
        if self.turn is None and before is not None and before.head == head:
            self.turn, self._known = before, {each.at: each for each in before.known}
        return self.turn if self.turn is not None and self.turn.head == head else None

    def known(self) -> tuple[KnownCall, ...]:
        """What is known of the step's calls, in call order."""
        return tuple(self._known[at] for at in sorted(self._known))

    def results(self) -> dict[int, ToolResult]:
        """Results of the step's calls, as far as they are known."""
        return {at: each.result for at, each in self._known.items() if each.result is not None}

    def answers(self) -> Mapping[int, AnsweredCall]:
        """How the calls that waited were answered."""
        return {at: each.answered for at, each in self._known.items() if each.answered is not None}

    def found(self, at: int, result: ToolResult) -> None:
        """A tool of the step has run."""
        before = self._known.get(at)
        answered = only_set(answered=None if before is None else before.answered)
        self._known[at] = KnownCall(at=at, result=result, **answered)

    @property
    def held(self) -> int:
        """Bytes of results that are here, not put aside: all of them are in one input of the next step."""
        return sum(
            len(each.text.encode(errors="surrogatepass")) + _size_of_parts(each)
            for each in self.results().values()
        )

    def to_run(self) -> list[int]:
        """Calls of the step that may run now: those that wait for nobody, and the approved ones."""
        if self.turn is None:
            return []
        held = {*(each.at for each in self._unanswered_calls()), *self.results()}
        calls = range(len(self.turn.calls))
        return [at for at in calls if at not in held and not self.sleepers.holds(at)]

    @property
    def ready(self) -> bool:
        """Whether the turn can do anything: a call may run, or all have their results."""
        waits = self._unanswered_calls() or self.sleepers
        return self.turn is not None and (bool(self.to_run()) or not waits)

    # -- answers

    def calls(self) -> tuple[str, ...]:
        """Ids of those of the step that wait for somebody, or did."""
        return tuple(each.id for each in self._waiting_calls())

    def knows(self, call: str) -> bool:
        """Whether the call waits, or was answered."""
        return call in self._memory or any(each.id == call for each in self._waiting_calls())

    def kind_wanted(self, call: str) -> CallKind | None:
        """Of the answer that this call still takes; None if it takes none."""
        now = self._clock()
        open_calls = (each for each in self._unanswered_calls() if not is_past(each.until, now))
        return next((each.kind for each in open_calls if each.id == call), None)

    def submit(self, request: SubmitInput) -> Submission:
        """Take an answer, once; whoever comes later is told when the first one came."""
        now = self._clock()
        call = next((each for each in self._waiting_calls() if each.id == request.call), None)
        # What waits again was answered in a part of the thread that is lost.
        before = self._memory.get(request.call) if call is None else self.answers().get(call.at)
        first = None if before is None else FirstAnswer(before.outcome, before.when, before.by)
        deadline = None if call is None else call.until
        refusal = refuse_answer(first, is_known=call is not None, deadline=deadline, now=now, by=request.by)
        if refusal is not None or call is None:
            if first is None and call is not None:
                self._expire_call(call, now)
            return refusal or Submission(status="not_pending")
        answered = AnsweredCall(id=call.id, when=now, **only_set(outcome=request.outcome, by=request.by))
        result = result_of_answer(
            call.kind, request.outcome, request.text, parts=request.parts, ref=request.ref
        )
        self._record_known_call(KnownCall(at=call.at, answered=answered, **only_set(result=result)))
        return Submission(status="submitted", completed_at=now)

    def expire(self) -> None:
        """Give up calls whose deadline has passed."""
        now = self._clock()
        for call in self._unanswered_calls():
            if is_past(call.until, now):
                self._expire_call(call, now)

    def give_up(self, why: str) -> None:
        """Nobody needs to answer any more; what has not run will not."""
        now = self._clock()
        for call in self._waiting_calls():
            before = self.answers().get(call.at)
            answered = before or AnsweredCall(id=call.id, outcome="error", when=now)
            if call.at not in self.results():
                self._record_known_call(KnownCall(at=call.at, result=error_result(why), answered=answered))
        # Also those behind a sub-agent that sleeps, which is woken to end: they would run after it.
        for at in range(len(self.turn.calls) if self.turn else 0):
            if at not in self.results() and not self.sleepers.has(at):
                self._record_known_call(KnownCall(at=at, result=error_result(why)))

    def left(self) -> float | None:
        """Seconds until the first call counts as unanswered; None if all may wait for ever."""
        first = min((each.until for each in self._unanswered_calls() if each.until is not None), default=None)
        own = None if first is None else max((first - self._clock()) / 1000, 0.0)
        return min((each for each in (own, self.sleepers.left()) if each is not None), default=None)

    def pending(self) -> tuple[PendingCall, ...]:
        """What is still wanted, as clients see it."""
        if self.turn is None:
            return ()
        turn, position = self.turn, self.turn.head.position - 1
        return tuple(pending_call(each, turn.calls[each.at], position) for each in self._unanswered_calls())

    def remember(self, answered: Sequence[AnsweredCall]) -> None:
        """Calls that were answered in earlier executions."""
        for each in answered:
            self._memory.setdefault(each.id, each)
        self._forget_oldest()

    def answered_before(self, answered: Sequence[AnsweredCall]) -> None:
        """Calls of the turn under way whose answers the thread has."""
        self.remember(answered)
        self.on_known(each.id for each in answered)

    def remember_below(self, answered: AnsweredCall) -> None:
        """A call of a sub-agent was answered, which no step of ours says."""
        self._unsaid[answered.id] = None
        self.remember((answered,))
        self._below = True

    def expired(self) -> tuple[AnsweredCall, ...]:
        """Calls that nobody answered in time, here or below."""
        return tuple(each for each in self._memory.values() if each.outcome == "expired")

    def unsaid(self) -> tuple[AnsweredCall, ...]:
        """Calls of sub-agents that were answered, and that the slice has with the next step."""
        return tuple(self._memory[each] for each in self._unsaid)

    def said(self, answered: Sequence[AnsweredCall]) -> None:
        """A step has told the slice of them."""
        for each in answered:
            self._unsaid.pop(each.id, None)

    def unsaved(self) -> tuple[AnsweredCall, ...]:
        """Calls that were answered, as far as an ending saves them."""
        if self._below and self.sleepers.allowed:
            return tuple(self._memory.values())
        # Without a save of their own: with what is known of the turn that waits.
        return self.unsaid() if self.turn is not None and (self._known or self.sleepers) else ()

    def carried(self) -> dict[str, Any]:
        """What the next run needs."""
        turn = self.turn and self._with_known_calls(self.turn)
        known, unsaid = tuple(self._memory.values()), tuple(self._unsaid)
        return only_set(suspended=turn, answered_calls=known or None, unsaid=unsaid or None)

    def suspension(self) -> Suspension | None:
        """What the slice is to say of the turn, where sub-agents sleep: no step could say so."""
        if self.turn is None or not self.sleepers:
            return None
        known = {"calls": self.turn.waiting or None, "known": self.known() or None}
        return Suspension(head=self.turn.head, children=self.sleepers.waits(), **only_set(**known))

    def to_save(self) -> dict[str, Any]:
        """What an ending saves of it."""
        return {"known": self.known() or None, "suspended": self.suspension(), "answered": self.unsaved()}

    # -- how

    def _with_known_calls(self, turn: SuspendedTurn) -> SuspendedTurn:
        children = {"children": self.sleepers.waits()} if self.sleepers or turn.children else {}
        return turn.model_copy(update={"known": self.known(), **children})

    def _from_now(self, call: WaitingCall) -> WaitingCall:
        now = self._clock()
        if abs(now - call.since) < _CLOCKS:
            return call
        until = {} if call.until is None else {"until": now + call.until - call.since}
        return call.model_copy(update={"since": now, **until})

    def _waiting_calls(self) -> tuple[WaitingCall, ...]:
        return () if self.turn is None else self.turn.waiting

    def _unanswered_calls(self) -> list[WaitingCall]:
        return [each for each in self._waiting_calls() if each.at not in self._known]

    def _expire_call(self, call: WaitingCall, now: int) -> None:
        answered = AnsweredCall(id=call.id, outcome="expired", when=now)
        self._record_known_call(KnownCall(at=call.at, result=error_result(NO_ANSWER), answered=answered))

    def _record_known_call(self, call: KnownCall) -> None:
        self._known[call.at] = call
        if call.answered is not None:
            self._memory[call.answered.id] = call.answered
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        while len(self._memory) > REMEMBERED_CALLS:
            gone, _ = self._memory.popitem(last=False)
            self._unsaid.pop(gone, None)


def _tell_nobody() -> None:
    """Nobody is told."""


def _size_of_parts(result: ToolResult) -> int:
    return 0 if result.parts is None else len(canonical_json(result.parts))
