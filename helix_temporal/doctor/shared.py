"""Something that several checks need, and that is made once."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from helix_temporal._futures import discard_error

T = TypeVar("T")


class Shared(Generic[T]):
    """Makes it when it is first asked for; all who ask get it, or the error."""

    def __init__(self, make: Callable[[], Awaitable[T]]) -> None:
        self._make = make
        self._made: asyncio.Future[T] | None = None

    async def get(self) -> T:
        """What was made; who gives up waiting does not take it from the others."""
        if self._made is None:
            self._made = asyncio.ensure_future(self._make())
            self._made.add_done_callback(discard_error)
        return await asyncio.shield(self._made)

    def stop(self) -> None:
        """Nobody asks any more."""
        if self._made is not None:
            self._made.cancel()
