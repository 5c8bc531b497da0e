"""A PostgreSQL database that counts round trips and keeps the statements."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from helix_temporal.stores.postgres import PostgresDatabase, PostgresExecutor
from helix_temporal.stores.postgres.database import DatabaseRow


class _Counted:
    def __init__(self, inner: PostgresExecutor, counter: "CountingDatabase") -> None:
        self._inner, self._counter = inner, counter

    async def fetch(self, query: str, *args: Any, timeout: float | None = None) -> list[Any]:
        """As `PostgresExecutor.fetch`."""
        self._counter.note(query, args)
        return await self._inner.fetch(query, *args, timeout=timeout)

    async def fetchrow(self, query: str, *args: Any, timeout: float | None = None) -> DatabaseRow | None:
        """As `PostgresExecutor.fetchrow`."""
        self._counter.note(query, args)
        return await self._inner.fetchrow(query, *args, timeout=timeout)

    async def fetchval(self, query: str, *args: Any, timeout: float | None = None) -> Any:
        """As `PostgresExecutor.fetchval`."""
        self._counter.note(query, args)
        return await self._inner.fetchval(query, *args, timeout=timeout)

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        """As `PostgresExecutor.execute`."""
        self._counter.note(query, args)
        return await self._inner.execute(query, *args, timeout=timeout)


class CountingDatabase(_Counted):
    """Passes everything on.

    Attributes:
        round_trips: Statements, and the begin and the end of each transaction.
        statements: Texts and arguments of all statements.
    """

    def __init__(self, inner: PostgresDatabase) -> None:
        super().__init__(inner, self)
        self._database, self.where = inner, inner.where
        self.round_trips = 0
        self.statements: list[tuple[str, tuple[Any, ...]]] = []

    def note(self, query: str, args: tuple[Any, ...]) -> None:
        """One statement more."""
        self.round_trips += 1
        self.statements.append((query, args))

    def reset(self) -> None:
        """Count from zero."""
        self.round_trips = 0
        self.statements.clear()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[PostgresExecutor]:
        """As `PostgresDatabase.transaction`."""
        self.round_trips += 2
        async with self._database.transaction() as transaction:
            yield _Counted(transaction, self)

    async def close(self) -> None:
        """As `PostgresDatabase.close`."""
        await self._database.close()
