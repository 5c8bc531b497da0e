"""Backends that break off at any call: a port, a Redis connection, a PostgreSQL database."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from redis.asyncio import Redis

from helix_temporal.stores.postgres import PostgresDatabase, PostgresExecutor
from helix_temporal.stores.postgres.database import DatabaseRow
from helix_temporal.stores.protocols.session_rows import SessionRows
from helix_temporal.stores.redis.cluster import Cluster
from helix_temporal.stores.redis.connection import RedisConnection
from tests.contracts._session_crashes import Faults

T = TypeVar("T")


class BreakingCalls:
    """Any store: breaks off before or after each of its calls.

    After: the call has happened and its answer is lost.
    """

    def __init__(self, inner: object, faults: Faults) -> None:
        self._inner, self._faults = inner, faults

    def __getattr__(self, name: str) -> Any:
        """The inner one's method, with a point before it and one after it."""
        found: Any = getattr(self._inner, name)
        if name in {"scan", "close", "keeps_threads", "durable"}:
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            await self._faults.at(f"before {name}")
            answer = await found(*args, **kwargs)
            await self._faults.at(f"after {name}")
            return answer

        return call


def breaking_rows(inner: SessionRows, faults: Faults) -> SessionRows:
    """The port, breaking off."""
    rows: Any = BreakingCalls(inner, faults)
    return rows  # type: ignore[no-any-return]


class BreakingConnection(RedisConnection):
    """A Redis connection: breaks off before or after each command and script."""

    faults: Faults

    async def within_deadline(self, call: Callable[[Redis | Cluster], Coroutine[Any, Any, T]]) -> T:
        """The call, with a point before it and one after it."""
        await self.faults.at("before a command")
        answer = await super().within_deadline(call)
        await self.faults.at("after a command")
        return answer


class BreakingExecutor:
    """A PostgreSQL executor: breaks off before or after each statement."""

    def __init__(self, inner: PostgresExecutor, faults: Faults) -> None:
        self._inner, self._faults = inner, faults

    async def fetch(self, query: str, *args: Any, timeout: float | None = None) -> list[Any]:
        """As the inner one."""
        return await self._point(self._inner.fetch(query, *args, timeout=timeout))

    async def fetchrow(self, query: str, *args: Any, timeout: float | None = None) -> DatabaseRow | None:
        """As the inner one."""
        return await self._point(self._inner.fetchrow(query, *args, timeout=timeout))

    async def fetchval(self, query: str, *args: Any, timeout: float | None = None) -> Any:
        """As the inner one."""
        return await self._point(self._inner.fetchval(query, *args, timeout=timeout))

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        """As the inner one."""
        return await self._point(self._inner.execute(query, *args, timeout=timeout))

    async def _point(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            await self._faults.at("before a statement")
        except BaseException:
            call.close()
            raise
        answer = await call
        await self._faults.at("after a statement")
        return answer


class BreakingDatabase(BreakingExecutor):
    """A PostgreSQL database: breaks off around statements, and around the end of transactions."""

    def __init__(self, inner: PostgresDatabase, faults: Faults) -> None:
        super().__init__(inner, faults)
        self._database = inner
        self.where = inner.where

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[PostgresExecutor]:
        """A transaction of the inner one."""
        await self._faults.at("before a transaction")
        async with self._database.transaction() as transaction:
            yield BreakingExecutor(transaction, self._faults)
            await self._faults.at("before its commit")
        await self._faults.at("after its commit")

    async def close(self) -> None:
        """Close the inner one."""
        await self._database.close()
