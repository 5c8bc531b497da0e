"""One event loop in a thread of its own, for interfaces that are synchronous or change their event loop."""

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from helix_temporal.errors import InvalidRequestError, RunningLoopError

T = TypeVar("T")

CLOSE_WITHIN: Final = 5.0
"""Seconds that a close waits for what it cancelled."""


class BackgroundLoop:
    """An event loop in a daemon thread, started by the first call.

    Stores belong to one event loop: all calls to them go through the same `BackgroundLoop`, and closing them
    as well.  Any number of threads may call at once.

    A fork takes no threads along: in the child process the first call starts a loop of its own.  Stores that
    were used before the fork belong to the parent's loop, and refuse to be used in the child: make new ones.
    """

    def __init__(self, name: str = "helix-background") -> None:
        self._name = name
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process, self._closed = os.getpid(), False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and return its result; the calling thread waits.

        Raises:
            RunningLoopError: An event loop runs in this thread; await `call`, or the async form of what you
                called.
            InvalidRequestError: It is closed.
        """
        if _has_running_loop():
            work.close()
            raise RunningLoopError(
                "a synchronous call inside a running event loop, which would stand still for it: "
                "await the async form"
            )
        future = self._submit(work)
        try:
            return future.result()
        finally:
            # Where the wait was interrupted nobody wants the result any more.
            future.cancel()

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on this loop, from any other one; a cancel reaches it.

        Raises:
            InvalidRequestError: It is closed.
        """
        if asyncio.get_running_loop() is self._loop:
            return await work
        return await asyncio.wrap_future(self._submit(work))

    def close(self) -> None:
        """Cancel what runs, and end loop and thread; what waits for a result gets a `CancelledError`.

        May be repeated.  Not from the loop itself.
        """
        with self._starting:
            self._closed = True
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None or self._process != os.getpid():
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        with self._starting:
            if self._closed:
                work.close()
                raise InvalidRequestError("this background loop is closed")
            if self._loop is None or self._process != os.getpid():
                self._start()
            assert self._loop is not None
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _start(self) -> None:
        self._process = os.getpid()
        self._loop = loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_serve, args=(loop,), name=self._name, daemon=True)
        self._thread.start()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=CLOSE_WITHIN))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _has_running_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


_shared: Final = BackgroundLoop()


def shared_loop() -> BackgroundLoop:
    """The loop of this process that adapters use where none is given, so that they can share stores."""
    return _shared
