"""Connections of a pool, kept at hand between two statements."""

import asyncio
from typing import Any

import asyncpg

from helix_temporal.stores.postgres._errors import has_moved


class Connections:
    """Connections of an asyncpg pool: taken for a statement or a transaction, and given back.

    Going through the pool costs a task and two timers each time, a third of a short statement.  So a
    connection of our own pool stays taken and is used again; one of a given pool goes back each time.

    Args:
        size: How many connections a pool of our own has; None for somebody else's pool.
        timeout: Seconds to wait for one.
    """

    def __init__(self, pool: "asyncpg.Pool[Any]", size: int | None, timeout: float) -> None:
        self._pool, self._timeout = pool, timeout
        self._slots = None if size is None else asyncio.Semaphore(size)
        self._idle: list[Any] = []
        self._closed = False

    @property
    def size(self) -> int:
        """At most so many at a time."""
        return self._pool.get_max_size()

    async def take(self) -> Any:
        """A connection that nobody else uses until it is given back."""
        if self._slots is None:
            return await self._pool.acquire(timeout=self._timeout)
        if self._slots.locked():
            async with asyncio.timeout(self._timeout):
                await self._slots.acquire()
        else:
            await self._slots.acquire()
        try:
            while self._idle:
                connection = self._idle.pop()
                if _is_open(connection):
                    return connection
                await self._pool.release(connection)
            return await self._pool.acquire(timeout=self._timeout)
        except BaseException:
            self._slots.release()
            raise

    async def give_back(self, connection: Any, error: BaseException | None) -> None:
        """Let others use it; ``error`` is what its use ended with.

        Where that was no word of the server's (a time-out, a cancelled task), the pool waits until the
        server is done with it, or closes it.  Where the server takes no writes any more, those that nobody
        uses are closed: new ones may lead to another server.
        """
        try:
            if has_moved(error):
                await self._let_go()
            unharmed = error is None or (isinstance(error, asyncpg.PostgresError) and not has_moved(error))
            if self._slots is None or self._closed or not unharmed:
                await self._pool.release(connection, timeout=self._timeout)
            else:
                self._idle.append(connection)
        finally:
            if self._slots is not None:
                self._slots.release()

    async def close(self) -> None:
        """Close all of them; one that is in use when it is given back."""
        self._closed = True
        await self._release_idle()
        # What is still busy has lost its caller, and a server that hangs must not hold us up.
        try:
            async with asyncio.timeout(self._timeout):
                await self._pool.close()
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
            self._pool.terminate()

    async def _let_go(self) -> None:
        # What is released from now on is closed, the connection that told included.
        await self._pool.expire_connections()
        await self._release_idle()

    async def _release_idle(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            await self._pool.release(connection, timeout=self._timeout)


def _is_open(connection: Any) -> bool:
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:
        # The pool took it back when the server closed it.
        return False
