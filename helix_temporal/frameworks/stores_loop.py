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


class StoresLoop:
    """The event loop that uses some stores: the first one that calls them, until it has ended."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._claiming = threading.Lock()

    async def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do some work on that loop, from whatever loop; a cancel reaches it.

        Raises:
            StoreUnavailableError: That loop ended before the work did.
            RunningLoopError: That loop stands still, perhaps since it waits for this very call.
        """
        running = asyncio.get_running_loop()
        chosen = self._claim(running)
        return await work() if chosen is running else await _call_elsewhere(chosen, work)

    def _claim(self, running: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
        with self._claiming:
            if self._loop is None or not self._loop.is_running():
                self._loop = running
            return self._loop


async def _call_elsewhere(loop: asyncio.AbstractEventLoop, work: Callable[[], Awaitable[T]]) -> T:
    has_begun = False

    async def begin() -> T:
        nonlocal has_begun
        has_begun = True
        return await work()

    future = asyncio.run_coroutine_threadsafe(begin(), loop)
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


class _BoundStore:
    """A store whose calls are made on one loop."""

    def __init__(self, store: object, loop: StoresLoop) -> None:
        self._store, self._loop = store, loop

    def __getattr__(self, name: str) -> Any:
        found: Any = getattr(self._store, name)
        if inspect.iscoroutinefunction(found):

            async def call(*args: Any, **kwargs: Any) -> Any:
                return await self._loop.call(lambda: found(*args, **kwargs))

            return call
        if inspect.isasyncgenfunction(found):

            async def iterate(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
                each, end = found(*args, **kwargs), object()
                while (item := await self._loop.call(lambda: anext(each, end))) is not end:
                    yield item

            return iterate
        return found


_loops: Final[WeakKeyDictionary[Any, StoresLoop]] = WeakKeyDictionary()
_making: Final = threading.Lock()


def bind_to_loop(store: S, *, together_with: object) -> S:
    """A store that may be called from any event loop, and from threads that have one.

    Args:
        store: Whose calls are sent to the loop that used it first.
        together_with: What has the same connections; all stores with the same have one loop.
    """
    with _making:
        loop = _loops.setdefault(together_with, StoresLoop())
    return cast("S", _BoundStore(store, loop))
