"""The unreliable surroundings: one seed decides what fails, when, and how."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from helix_temporal.errors import StoreUnavailableError
from tests.simulation._loop import SimLoop

T = TypeVar("T")

Trace = Callable[[str], None]


class Violation(BaseException):
    """A promise was broken."""


@dataclass(frozen=True, slots=True)
class Rates:
    """How often each fault strikes per call, and each event per turn."""

    transient: float = 0.025
    reply_lost: float = 0.03
    late_script: float = 0.012
    late_put: float = 0.03
    false_412: float = 0.03
    slow: float = 0.02
    outage: float = 0.004
    wipe: float = 0.006
    snapshot: float = 0.03
    crash: float = 0.07
    zombie: float = 0.09
    cancelled: float = 0.02
    completion_lost: float = 0.05
    late_double: float = 0.08
    skew: float = 0.4
    terminate: float = 0.12
    cancel: float = 0.08
    end: float = 0.06
    reset: float = 0.08
    reset_older: float = 0.05
    rewind: float = 0.05
    beside: float = 0.16
    late_open: float = 0.3
    beside_kinds: tuple[str, ...] = ("read", "read", "read", "compact", "collect", "fork", "sweep")


class _Yield:
    """Let others run; whether they do is the loop's choice."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield


YIELD = _Yield()


@dataclass(slots=True)
class Attempt:
    """One attempt of an activity, as the worker that runs it knows it.

    Attributes:
        stop: The boundary of an I/O call at which ``fate`` strikes.
        lost: Told once Temporal has given the attempt up.
        epoch: When the activity was scheduled, in µs.
        number: Which attempt of its activity it is, from 1 on.
        run: Of the workflow whose activity it is; empty for none.
        unanswered: The hot tier did not answer an append of it.
    """

    name: str
    process: "Process"
    fate: str = ""
    stop: int = 0
    lost: asyncio.Future[None] | None = None
    epoch: int = 0
    number: int = 1
    run: str = ""
    boundaries: int = 0
    unanswered: bool = False

    def __post_init__(self) -> None:
        self.process.attempts.append(self)

    def give_up(self) -> None:
        """Temporal waits for it no longer."""
        if self.lost is not None and not self.lost.done():
            self.lost.set_result(None)


@dataclass(slots=True)
class Process:
    """A worker process: all that it remembers dies with it."""

    number: int
    worker: Any
    dead: bool = False
    attempts: list["Attempt"] = field(default_factory=list)


attempt_of: ContextVar[Attempt | None] = ContextVar("attempt_of", default=None)


@dataclass
class World:
    """Chance, time and what happened so far.

    Attributes:
        keeps_answers: A store is away for less time than a step keeps its answer.  Not in all seeds: several
            guards are there for another attempt, which asks for another answer.
    """

    seed: int
    rates: Rates = field(default_factory=Rates)
    durable_hot: bool = False
    trace: Trace | None = None

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.draw = self.random.random
        self.loop = SimLoop(self.random)  # type: ignore[abstract]
        self.keeps_answers = self.seed % 3 == 0
        self.seen: Counter[str] = Counter()
        self.violation: Violation | None = None
        self.mischief: list[Callable[[], None]] = []
        self.abandoned: list[asyncio.Task[Any]] = []
        self._unique = 0
        self._clock = 0
        self.calm = False
        self.newest_open = 0
        self.reset_epochs: set[int] = set()
        self.undone_epochs: set[int] = set()
        self.excuse: Callable[[], str] = str
        self.excused = ""

    # -- chance

    def chance(self, probability: float) -> bool:
        """Whether it happens."""
        return self.draw() < probability

    def between(self, low: float, high: float) -> float:
        """A time between two, each order of magnitude as likely as the other."""
        return float(low * (high / low) ** self.draw())

    def unique(self) -> int:
        """1, then 2, then 3."""
        self._unique += 1
        return self._unique

    def epoch(self) -> int:
        """Scheduled time of an activity: nearly the time of day, now and then by a clock that is off."""
        skew = self.random.choice((1_500, 40_000, -2_000)) if self.chance(self.rates.skew) else 0
        return int(self.loop.time() * 1e6) + skew + self.unique()

    # -- what happened

    def note(self, what: str, detail: object = "") -> None:
        """Count something survived."""
        self.seen[what] += 1
        if self.trace:
            self.say(f"{what} {detail}")

    def say(self, line: str) -> None:
        """A line of the trace."""
        if self.trace:
            attempt = attempt_of.get()
            who = f"{attempt.name}@{attempt.process.number}" if attempt else "-"
            self.trace(f"{self.loop.time() - 1e9:10.4f} {who:24} {line}")

    def fail(self, why: str) -> NoReturn:
        """A promise was broken: the run ends here."""
        if self.violation is None:
            self.violation = Violation(why)
            self.excused = self.excuse()
        self.say(f"VIOLATION {why}")
        raise self.violation

    # -- boundaries of I/O calls

    async def boundary(self) -> None:
        """Where others run, mischief happens, and attempts meet their fate."""
        attempt = attempt_of.get()
        await YIELD
        for do in self.mischief:
            do()
        if attempt is None:
            return
        attempt.boundaries += 1
        if attempt.boundaries == attempt.stop and attempt.fate:
            await self._strike(attempt)
        if attempt.process.dead:
            await self.forever()

    async def _strike(self, attempt: Attempt) -> None:
        self.note(attempt.fate, attempt.name)
        if attempt.fate == "crash":
            attempt.process.dead = True
            for each in attempt.process.attempts:
                each.give_up()
        else:
            attempt.give_up()
            await asyncio.sleep(self.between(0.001, 20.0))

    async def forever(self) -> NoReturn:
        """A dead process: not even a cancel reaches it."""
        while True:
            try:
                await self.loop.create_future()
            except asyncio.CancelledError:
                continue

    def later(self, seconds: float, do: Callable[[], object]) -> None:
        """Something that happens on its own."""
        self.loop.call_later(seconds, do)

    def spawn(self, coro: Any, attempt: Attempt | None = None) -> "asyncio.Task[Any]":
        """A task of its own, in the name of an attempt."""
        token = attempt_of.set(attempt)
        try:
            task: asyncio.Task[Any] = self.loop.create_task(coro)
        finally:
            attempt_of.reset(token)
        self.abandoned.append(task)
        task.add_done_callback(self._check)
        return task

    async def interrupt(self, task: "asyncio.Task[Any]", within: float) -> None:
        """Let a workflow end at any moment of these seconds; the activities that it has started go on."""
        await asyncio.sleep(self.between(0.0005, within))
        task.cancel()
        await asyncio.wait([task])

    async def insist(self, do: Callable[[], Awaitable[T]], attempts: int = 8) -> T | None:
        """What was answered at last; None: it was given up, and may have happened."""
        for attempt in range(attempts):
            try:
                return await do()
            except StoreUnavailableError:
                await asyncio.sleep(self.between(0.001, 2.0) * attempt)
        return None

    def _check(self, task: "asyncio.Task[Any]") -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Violation) and self.violation is None:
            self.violation = error


def run_now(effect: Awaitable[Any]) -> Any:
    """The result of a coroutine that never waits: what a server does in one step."""
    iterator = effect.__await__()
    try:
        next(iterator)
    except StopIteration as done:
        return done.value
    raise RuntimeError("an atomic step waited")


def run_standing_still(effect: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The result of a coroutine that may wait, of several tasks, while the world stands still."""
    with ThreadPoolExecutor(1) as aside:
        return aside.submit(lambda: asyncio.run(effect())).result()
