"""Every I/O boundary of an activity, and what can happen there."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from enum import StrEnum
from typing import Any, Final, TypeVar, cast

from helix_temporal.errors import StoreUnavailableError

T = TypeVar("T")


class At(StrEnum):
    """What happens at one boundary of an attempt."""

    ERROR_BEFORE = "error before"
    """The call fails, nothing happened."""
    ANSWER_LOST = "answer lost"
    """It takes effect and fails."""
    KILLED_BEFORE = "killed before"
    """The attempt ends here without a word; nothing happened."""
    KILLED_AFTER = "killed after"
    """It takes effect, and the attempt ends without a word."""
    LATE_BEFORE = "late before"
    """The attempt hangs here; its successor finishes; then it goes on, from before the call."""
    LATE_AFTER = "late after"
    """The same, from after the call's effect."""

    @property
    def is_late(self) -> bool:
        """The attempt outlives its successor."""
        return self in {At.LATE_BEFORE, At.LATE_AFTER}


SHORT: Final = (At.ERROR_BEFORE, At.ANSWER_LOST, At.KILLED_AFTER, At.LATE_BEFORE)
"""What happens in the short form: the others differ in which worker goes on, or in one call more."""


class Killed(BaseException):
    """Stands for the end of the process: nothing catches it."""


class Boundaries:
    """Counts calls of all stores of one attempt and lets something happen at one of them.

    Attributes:
        names: The calls so far.
        reached: The place came.
    """

    def __init__(self, place: int = 0, what: At | None = None) -> None:
        self.names: list[str] = []
        self.reached = asyncio.Event()
        self._place, self._what = place, what
        self._released = asyncio.Event()

    def release(self) -> None:
        """Let a late attempt go on."""
        self._released.set()

    async def around(self, name: str, act: Callable[[], Awaitable[T]]) -> T:
        """One call."""
        self.names.append(name)
        if len(self.names) != self._place or self._what is None:
            return await act()
        self.reached.set()
        if self._what is At.KILLED_BEFORE:
            raise Killed
        if self._what is At.ERROR_BEFORE:
            raise StoreUnavailableError(f"injected before {name}")
        if self._what is At.LATE_BEFORE:
            await self._released.wait()
        answer = await act()
        if self._what is At.KILLED_AFTER:
            raise Killed
        if self._what is At.ANSWER_LOST:
            raise StoreUnavailableError(f"injected after {name}")
        if self._what is At.LATE_AFTER:
            await self._released.wait()
        return answer

    def around_store(self, store: T, kind: str) -> T:
        """The store, all its calls counted here."""
        return cast("T", _Around(store, kind, self))


class _Around:
    def __init__(self, store: Any, kind: str, boundaries: Boundaries) -> None:
        self._store, self._kind, self._boundaries = store, kind, boundaries

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._store, name)
        if inspect.isasyncgenfunction(inner) or name in {"scan", "list"}:
            return lambda *args, **options: self._iterate(name, inner, args, options)
        if not inspect.iscoroutinefunction(inner):
            return inner

        async def call(*args: Any, **options: Any) -> Any:
            return await self._boundaries.around(f"{self._kind}.{name}", lambda: inner(*args, **options))

        return call

    async def _iterate(self, name: str, inner: Any, args: Any, options: Any) -> AsyncIterator[Any]:
        async def whole() -> list[Any]:
            return [each async for each in inner(*args, **options)]

        for each in await self._boundaries.around(f"{self._kind}.{name}", whole):
            yield each
