"""Waiting for news of streams in a store that tells nobody: one question for all that this process reads."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

Place = tuple[str, int, int]
"""Of which making, the last sequence, and the revision: what a stream is compared with."""

_QUICK: Final = 0.01
_SLOW: Final = 0.1
_GROWTH: Final = 1.3


class Polling:
    """Asks while somebody waits: every 10 ms while chunks come, down to every 100 ms while none do.

    Args:
        ask: How far streams of these ids are; those that are gone are left out.
        where: The store, for the task's name.
    """

    def __init__(self, ask: Callable[[Sequence[str]], Awaitable[Mapping[str, Place]]], where: str) -> None:
        self._ask, self._where = ask, where
        self._waiting: dict[str, tuple[Place, asyncio.Future[None]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._pause = _QUICK

    async def wait_for_news(self, stream_id: str, seen: Place, seconds: float) -> None:
        """Until the stream is elsewhere than it was seen, or the time is over.

        Raises:
            HelixError: The store cannot be asked.
        """
        future = asyncio.get_running_loop().create_future()
        self._waiting[stream_id] = (seen, future)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._ask_while_waited_for(), name=f"streams in {self._where}")
        try:
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError:
            return
        finally:
            if self._waiting.get(stream_id, (None, None))[1] is future:
                del self._waiting[stream_id]

    async def close(self) -> None:
        """Ask no more; of another event loop's it is left to that."""
        if self._task is None or self._task.get_loop() is not asyncio.get_running_loop():
            return
        task, self._task = self._task, None
        task.cancel()
        await asyncio.wait([task])

    async def _ask_while_waited_for(self) -> None:
        while self._waiting:
            asked = dict(self._waiting)
            try:
                found = await self._ask([*asked])
            except Exception as error:  # noqa: BLE001 — whatever it is, it belongs to those who wait
                for _, future in (*asked.values(), *self._waiting.values()):
                    if not future.done():
                        future.set_exception(error)
                return
            moved = [future for id_, (seen, future) in asked.items() if found.get(id_) != seen]
            for future in moved:
                if not future.done():
                    future.set_result(None)
            self._pause = _QUICK if moved else min(_SLOW, self._pause * _GROWTH)
            await asyncio.sleep(self._pause)
