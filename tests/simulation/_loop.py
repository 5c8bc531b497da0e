"""An event loop without real time or I/O: what runs next is drawn from a seed."""

import asyncio
import heapq
import itertools
import random
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")

TICK = 0.0002
"""Virtual seconds that one callback takes."""


class StuckError(Exception):
    """Nothing is left to run, or the run does not end."""


class SimHandle:
    """A callback that waits; the part of `asyncio.Handle` that tasks and time-outs use."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "time")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> None:
        self.callback, self.args = callback, args
        self.context = context if context is not None else copy_context()
        self.is_cancelled, self.time = False, 0.0

    def cancel(self) -> None:
        """Do not run it."""
        self.is_cancelled = True

    def cancelled(self) -> bool:
        """Whether it will not run."""
        return self.is_cancelled

    def when(self) -> float:
        """Virtual time at which it is due."""
        return self.time


def settle(future: "asyncio.Future[None]", *_: object) -> None:
    """Wake whoever waits, unless somebody has."""
    if not future.done():
        future.set_result(None)


def _unless_done(future: "asyncio.Future[Any]", tell: Callable[[], None]) -> None:
    if not future.done():
        tell()


class SimLoop(asyncio.AbstractEventLoop):
    """Tasks, futures, timers and ``to_thread`` in virtual time.

    Among the callbacks that are ready any may be next: a program that is right only in the order of
    arrival fails here.  The same ``random`` gives the same run.

    Args:
        random: Where each choice comes from.
        start: Virtual seconds since 1970 at the beginning.
        max_callbacks: A run of more than this is a live-lock.
    """

    def __init__(self, random: random.Random, *, start: float = 1e9, max_callbacks: int = 400_000) -> None:
        self._draw, self._now, self._left = random.random, start, max_callbacks
        self._ready: list[SimHandle] = []
        self._timers: list[tuple[float, int, SimHandle]] = []
        self._numbers = itertools.count()
        self._on: object = None

    # -- what tasks, futures and time-outs ask for

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> SimHandle:
        """Make a callback ready."""
        handle = SimHandle(callback, args, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> SimHandle:
        """Make a callback ready after a while."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> SimHandle:
        """Make a callback ready at a virtual time."""
        handle = SimHandle(callback, args, context)
        handle.time = when
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def time(self) -> float:
        """Virtual seconds since 1970."""
        return self._now

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> Any:
        """A task of this loop."""
        return asyncio.Task(coro, loop=self, name=name or "task", context=context)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Threads would bring real time in: the function runs at once, its result comes later."""
        future = self.create_future()
        try:
            told: Callable[[], None] = partial(future.set_result, func(*args))
        except Exception as error:  # noqa: BLE001 (it is the future's)
            told = partial(future.set_exception, error)
        self.call_soon(partial(_unless_done, future, told))
        return future

    def get_debug(self) -> bool:
        """No."""
        return False

    def is_running(self) -> bool:
        """Whether a callback is being run."""
        return self._on is not None

    def is_closed(self) -> bool:
        """Never."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Abandoned tasks are what a simulation is about: nothing is said of them."""

    # -- running

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run until ``main`` is done; what else is under way stays where it is.

        Raises:
            StuckError: Nothing is left to run, or too much was.
        """
        task: asyncio.Task[T] = self.create_task(main)
        with self:
            while not task.done():
                self._run_one()
        return task.result()

    def _run_one(self) -> None:
        ready, timers = self._ready, self._timers
        if not ready:
            if not timers:
                raise StuckError("nothing is left to run")
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            ready.append(heapq.heappop(timers)[2])
        at = int(self._draw() * len(ready))
        ready[at], ready[-1] = ready[-1], ready[at]
        handle = ready.pop()
        if handle.is_cancelled:
            return
        self._now += TICK
        self._left -= 1
        if self._left < 0:
            raise StuckError("the run does not end")
        handle.context.run(handle.callback, *handle.args)

    def __enter__(self) -> Self:
        self._on = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio._set_running_loop(self._on)  # type: ignore[arg-type]
        self._on = None
