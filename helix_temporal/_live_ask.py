"""An ask whose turn is watched while it runs."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Final, Self

from helix_temporal._streaming import Follow
from helix_temporal.models.sessions import AskResult
from helix_temporal.models.streams import StoredChunk
from helix_temporal.stores.protocols.streams import StreamStore

_GRACE: Final = 1.0
"""Seconds that the end of a turn may come after its answer."""


class LiveAsk:
    """An ask whose turn is watched: iterate over its chunks, then take its `result`.

    As a context manager it stops waiting at the end of the block; the message is sent all the same.

    Args:
        store: Where the streams are.
        session_id: Whose turn it is.
        message_id: The message that is sent.
        ask: Sends it and waits for the answer.
        after: Where to look for the turn; None for whatever comes from now on.
    """

    def __init__(
        self,
        store: StreamStore,
        session_id: str,
        message_id: str,
        ask: Callable[[], Coroutine[Any, Any, AskResult]],
        *,
        after: int | None = None,
    ) -> None:
        self._store, self._session_id, self.message_id = store, session_id, message_id
        self._ask, self._after = ask, after
        self._task: asyncio.Task[AskResult] | None = None
        self._pump: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [task for task in (self._task, self._pump) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def result(self) -> AskResult:
        """What became of the ask; raises what `SessionClient.ask` raises."""
        return await asyncio.shield(self._asked())

    async def __aiter__(self) -> AsyncGenerator[StoredChunk]:
        """The turn's chunks, each once, to its end.

        Raises what `SessionClient.ask` and `SessionClient.stream` raise.
        """
        queue: asyncio.Queue[StoredChunk | None] = asyncio.Queue()
        # Before the message is sent: nothing of its turn may be missed.
        after = await self._end() if self._after is None else self._after
        asked = self._asked()
        follow = Follow(
            self._store,
            self._session_id,
            after=after,
            message_id=self.message_id,
            expected=lambda: not asked.done(),
        )
        self._pump = pump = asyncio.create_task(_pump(follow.chunks(), asked, queue))
        try:
            while (stored := await queue.get()) is not None:
                yield stored
            await asyncio.wait([pump])
            if not asked.done() and pump.exception() is not None:
                await pump  # the answer may be long in coming: `result` waits for it
            await asyncio.wait([asked])
            if asked.exception() is not None:
                await asked
            await pump
        finally:
            pump.cancel()

    async def _end(self) -> int | None:
        info = await self._store.get_info(self._session_id)
        return None if info is None else info.last_sequence

    def _asked(self) -> "asyncio.Task[AskResult]":
        if self._task is None:
            self._task = asyncio.create_task(self._ask())
            # Whoever leaves early does not want to know.
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._task


async def _pump(
    source: AsyncGenerator[StoredChunk],
    asked: "asyncio.Task[Any]",
    queue: "asyncio.Queue[StoredChunk | None]",
) -> None:
    """Pass chunks on until the turn has ended, or its answer has come and nothing more is heard."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as limit:

            def soon(_: object) -> None:
                with contextlib.suppress(RuntimeError):  # it has ended in the same moment
                    limit.reschedule(loop.time() + _GRACE)

            asked.add_done_callback(soon)
            try:
                async with contextlib.aclosing(source):
                    async for stored in source:
                        queue.put_nowait(stored)
            finally:
                asked.remove_done_callback(soon)
    except TimeoutError:
        # The result is there: what the stream owes it does not owe us.
        return
    finally:
        queue.put_nowait(None)
