"""Sub-agents whose sessions have ended while they wait for people, and what wakes them.  Pure."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from helix_temporal.models.children import RoutedSubmit
from helix_temporal.models.states import is_past
from helix_temporal.models.suspensions import ChildWait, KnownCall, PendingCall, pending_below
from helix_temporal.models.tool_results import ToolResult


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


def _never() -> bool:
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
    leaves: Callable[[], bool] = _never
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
        return self._is_behind(at) or (wait is not None and not self._wakes(wait))

    def is_asleep(self, session_id: str) -> bool:
        """Whether that session waits for people."""
        return any(each.calls and each.session_id == session_id for each in self._asleep.values())

    def pending(self) -> tuple[PendingCall, ...]:
        """All that they wait for, with the way to each."""
        return pending_below(self.waits())

    def left(self) -> float | None:
        """Seconds until the first of them may go on although nobody has answered."""
        times = [time for wait in self._heeded() for time in _deadlines(wait)]
        return max((min(times) - self.clock()) / 1000, 0.0) if times else None

    def due(self) -> int | None:
        """When the first of their calls, here and below, has used up its time."""
        times = [time for wait in self._heeded() for time in (wait.until, wait.due)]
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

    def _heeded(self) -> list[ChildWait]:
        """Those whose time wakes them: not that of one that waits for another to go on first."""
        return [wait for wait in self._asleep.values() if wait.calls and not self._is_behind(wait.at)]

    def _is_behind(self, at: int) -> bool:
        asleep = self._asleep.items() if self.in_order else ()
        return any(before < at and not self._wakes(wait) for before, wait in asleep)

    def _wakes(self, wait: ChildWait) -> bool:
        if not wait.calls:
            return not self.is_asleep(wait.session_id)
        return wait.session_id in self._letters or any(
            is_past(each, self.clock()) for each in _deadlines(wait)
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


def _deadlines(wait: ChildWait) -> list[int]:
    times = [wait.until, wait.due, *(each.until for each in wait.calls)]
    return [each for each in times if each is not None]
