"""Stores that are called from several event loops, as frameworks do that run synchronous code in threads."""

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeVar, cast
from weakref import WeakKeyDictionary

from helix_temporal.errors import RunningLoopError, StoreUnavailableError

T = TypeVar("T")
S = TypeVar("S")

BEGIN_WITHIN: Final = 10.0
"""Seconds in which the loop of the stores has to begin a call of another one."""


class HomeLoop:
    """The event loop that uses some stores: the first one that calls them, until it has ended."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._claiming = threading.Lock()

    async def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do some work on the home loop, from whatever loop; a cancel reaches it.

        Raises:
            StoreUnavailableError: The home loop ended before the work did.
            RunningLoopError: The home loop stands still, perhaps since it waits for this very call.
        """
        running = asyncio.get_running_loop()
        home = self._claim(running)
        return await work() if home is running else await _call_elsewhere(home, work)

    def _claim(self, running: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
        with self._claiming:
            if self._loop is None or not self._loop.is_running():
                self._loop = running
            return self._loop


async def _call_elsewhere(home: asyncio.AbstractEventLoop, work: Callable[[], Awaitable[T]]) -> T:
    has_begun = False

    async def begin() -> T:
        nonlocal has_begun
        has_begun = True
        return await work()

    future = asyncio.run_coroutine_threadsafe(begin(), home)
    answer = asyncio.wrap_future(future)
    try:
        await asyncio.wait([answer], timeout=BEGIN_WITHIN)
        if not has_begun and not answer.done():
            raise RunningLoopError(
                f"the event loop that uses these stores has not turned for {BEGIN_WITHIN:.0f} s: does it "
                "wait for a synchronous call? Await the async form, or give such calls other Backends"
            )
        return await answer
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and not task.cancelling():
            raise StoreUnavailableError("the event loop of these stores has ended; call again") from None
        raise
    finally:
        future.cancel()


class _Calls:
    """A store whose calls are made on its home loop."""

    def __init__(self, store: object, home: HomeLoop) -> None:
        self._store, self._home = store, home

    def __getattr__(self, name: str) -> Any:
        found: Any = getattr(self._store, name)
        if inspect.iscoroutinefunction(found):

            async def call(*args: Any, **kwargs: Any) -> Any:
                return await self._home.call(lambda: found(*args, **kwargs))

            return call
        if inspect.isasyncgenfunction(found):

            async def iterate(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
                each, end = found(*args, **kwargs), object()
                while (item := await self._home.call(lambda: anext(each, end))) is not end:
                    yield item

            return iterate
        return found


_homes: Final[WeakKeyDictionary[Any, HomeLoop]] = WeakKeyDictionary()
_making: Final = threading.Lock()


def call_at_home(store: S, *, together_with: object) -> S:
    """A store that may be called from any event loop, and from threads that have one.

    Args:
        store: Whose calls are sent to the loop that used it first.
        together_with: What has the same connections; all stores with the same have one home loop.
    """
    with _making:
        home = _homes.setdefault(together_with, HomeLoop())
    return cast("S", _Calls(store, home))
