"""Deadlines of operations that all may take equally long: one timer for all of them.

A timer each, as of `asyncio.timeout`, costs as much as packing the command and sending it.
"""

import asyncio
from types import TracebackType


class Deadlines:
    """Bounds operations in time, on the loop that runs them.

    Args:
        seconds: That each may take.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.running: dict[Bounded, float] = {}
        """When each is too late; the first one first, since they may take equally long."""

    def one(self) -> "Bounded":
        """One operation's."""
        return Bounded(self)

    def begin(self, operation: "Bounded") -> None:
        """From now on it is watched."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # What ran on another one ended with it.
            self._loop, self._timer = loop, None
            self.running.clear()
        self.running[operation] = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._look)

    def _look(self) -> None:
        """End what is too late, and come back for the next one."""
        assert self._loop is not None
        now, self._timer = self._loop.time(), None
        for operation, due in self.running.items():
            if due > now:
                self._timer = self._loop.call_at(due, self._look)
                return
            operation.end()


class Bounded:
    """A context manager: what runs in it is cancelled when it is too late.

    Raises:
        TimeoutError: It was.
    """

    __slots__ = ("_before", "_deadlines", "_late", "_task")

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines, self._late = deadlines, False

    def __enter__(self) -> None:
        """Begin."""
        task = asyncio.current_task()
        assert task is not None
        self._task, self._before = task, task.cancelling()
        self._deadlines.begin(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Tell a cancellation of ours from others."""
        self._deadlines.running.pop(self, None)
        if self._late and self._task.uncancel() <= self._before and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def end(self) -> None:
        """It is too late, once."""
        if not self._late:
            self._late = True
            self._task.cancel()
