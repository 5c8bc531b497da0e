"""Every I/O boundary of an activity, and what can happen there."""

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple, NoReturn, TypeVar, cast

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


class Place(NamedTuple):
    """A boundary: the ``nth`` call of this name.  What runs side by side does not come in one order."""

    call: str
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.call} {self.nth}"


def places_of(names: Sequence[str]) -> list[Place]:
    """All boundaries of an attempt that made these calls."""
    seen, found = Counter[str](), []
    for name in names:
        seen[name] += 1
        found.append(Place(name, seen[name]))
    return found


class Boundaries:
    """Counts calls of all stores of one attempt and lets something happen at one of them.

    Attributes:
        names: The calls so far.
        reached: The place came.
        before: How many calls came before it.
        dead: The process has ended: nothing of it reaches a store any more.
    """

    def __init__(self, place: Place | None = None, what: At | None = None) -> None:
        self.names: list[str] = []
        self.reached, self.dead = asyncio.Event(), asyncio.Event()
        self.before = 0
        self._place, self._what = place, what
        self._released = asyncio.Event()

    def release(self) -> None:
        """Let a late attempt go on."""
        self._released.set()

    async def around(self, name: str, act: Callable[[], Awaitable[T]]) -> T:
        """One call."""
        if self.dead.is_set():
            raise Killed
        self.names.append(name)
        if self._what is None or self._place != (name, self.names.count(name)):
            return await act()
        self.before = len(self.names) - 1
        self.reached.set()
        if self._what is At.KILLED_BEFORE:
            self._die()
        if self._what is At.ERROR_BEFORE:
            raise StoreUnavailableError(f"injected before {name}")
        if self._what is At.LATE_BEFORE:
            await self._released.wait()
        answer = await act()
        if self._what is At.KILLED_AFTER:
            self._die()
        if self._what is At.ANSWER_LOST:
            raise StoreUnavailableError(f"injected after {name}")
        if self._what is At.LATE_AFTER:
            await self._released.wait()
        return answer

    def _die(self) -> NoReturn:
        self.dead.set()
        raise Killed

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
            made = await self._boundaries.around(f"{self._kind}.{name}", lambda: inner(*args, **options))
            # A writer's own calls are boundaries as well.
            return self._boundaries.around_store(made, "writer") if name == "create_writer" else made

        return call

    async def _iterate(self, name: str, inner: Any, args: Any, options: Any) -> AsyncIterator[Any]:
        async def whole() -> list[Any]:
            return [each async for each in inner(*args, **options)]

        for each in await self._boundaries.around(f"{self._kind}.{name}", whole):
            yield each
