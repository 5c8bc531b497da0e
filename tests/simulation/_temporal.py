"""Temporal as it is to an activity: attempts at least once, workers that die, time-outs that were wrong."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from helix_temporal.errors import HelixError
from tests.simulation._loop import settle
from tests.simulation._worker import Worker
from tests.simulation._world import Attempt, Process, Violation, World

T = TypeVar("T")
Work = Callable[[Worker], Awaitable[T]]

WORKERS = 2
ATTEMPTS = 300


class Temporal:
    """Runs activities on workers that fail."""

    def __init__(self, world: World, new_worker: Callable[[], Worker]) -> None:
        self._world, self._new_worker = world, new_worker
        self._processes: list[Process] = []
        self._started = 0

    def process(self) -> Process:
        """A live worker; a dead one is replaced by one that remembers nothing."""
        self._processes = [process for process in self._processes if not process.dead]
        while len(self._processes) < WORKERS:
            self._started += 1
            self._processes.append(Process(self._started, self._new_worker()))
        return self._world.random.choice(self._processes)

    async def activity(self, name: str, work: Work[T], epoch: int = 0, run: str = "") -> T:
        """The first completion that Temporal records.

        Raises:
            HelixError: The first permanent failure that it records.
        """
        world = self._world
        for number in range(1, ATTEMPTS + 1):
            outcome = world.loop.create_future()
            attempt = self._attempt(name, outcome, epoch)
            attempt.number, attempt.run = number, run
            task = world.spawn(work(attempt.process.worker), attempt)
            if attempt.fate == "cancelled":
                world.later(world.between(0.0005, 0.5), task.cancel)
            task.add_done_callback(partial(settle, outcome))
            await outcome
            if not task.done():
                await asyncio.sleep(world.between(0.001, 2.0))
                continue
            if world.chance(world.rates.completion_lost) and not world.calm:
                world.note("completion lost", name)
                continue
            if task.cancelled():
                world.note("cancelled", name)
                continue
            error = task.exception()
            if error is None:
                return task.result()  # type: ignore[no-any-return]
            self._judge(error)
            if attempt.unanswered:
                world.note("append given up", name)
            await asyncio.sleep(world.between(0.01, 1.0))
        raise world.fail(f"{name} never ends")

    def _attempt(self, name: str, outcome: asyncio.Future[None], epoch: int) -> Attempt:
        world, rates = self._world, self._world.rates
        luck, fate = world.draw(), ""
        for candidate, rate in (
            ("crash", rates.crash),
            ("zombie", rates.zombie),
            ("cancelled", rates.cancelled),
        ):
            if not fate and luck < rate and not world.calm:
                fate = candidate
            luck -= rate
        stop = 0 if fate == "cancelled" else 1 + int(world.draw() * 16)
        return Attempt(name, self.process(), fate, stop, outcome, epoch)

    def _judge(self, error: BaseException) -> None:
        if isinstance(error, Violation):
            raise error
        if isinstance(error, HelixError) and error.retryable:
            return
        if isinstance(error, HelixError):
            raise error
        self._world.say(f"BUG {error!r}")
        raise error

    def late(self, name: str, work: Work[Any], epoch: int = 0, run: str = "") -> None:
        """An attempt that nobody waits for, and that may come much later."""
        attempt = Attempt(name, self.process(), epoch=epoch, run=run)
        self._world.spawn(self._late(work, attempt), attempt)

    async def _late(self, work: Work[Any], attempt: Attempt) -> None:
        await asyncio.sleep(self._world.between(0.001, 20.0))
        if attempt.process.dead:
            attempt.process = self.process()
        try:
            await work(attempt.process.worker)
        except HelixError as error:
            self._world.say(f"late attempt ended: {type(error).__name__}")

    def background(
        self, name: str, work: Work[Any], epoch: int = 0, *, refusals: tuple[type[HelixError], ...] = ()
    ) -> None:
        """An activity beside the session: maintenance, readers, other programs."""
        self._world.spawn(self._background(name, work, epoch, refusals))

    async def _background(
        self, name: str, work: Work[Any], epoch: int, refusals: tuple[type[HelixError], ...]
    ) -> None:
        try:
            await self.activity(name, work, epoch)
        except refusals as error:
            self._world.note(f"{name} refused: {type(error).__name__}")
