"""`PostgresAdapter` on asyncpg: connections, time-outs, and what errors mean."""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias, Union
from urllib.parse import urlsplit

import asyncpg

from helix_temporal.errors import InvalidConfigError, StoreUnavailableError
from helix_temporal.models._json import check_text
from helix_temporal.stores._home_loop import HomeLoop
from helix_temporal.stores.postgres._connections import Connections
from helix_temporal.stores.postgres._errors import DRIVER_ERRORS, LOST_STATEMENT, state_of, translate
from helix_temporal.stores.postgres._protocol import (
    REPEATED,
    TRIES,
    PostgresAdapter,
    PostgresExecutor,
    Row,
    pause,
)

logger = logging.getLogger(__name__)

_STATEMENTS: Final = 256
_LOOK_SECONDS: Final = 2.0
_PROCESS: Final = "SELECT pg_backend_pid()"
_PREPARED: Final = """SELECT count(*) FROM pg_prepared_statements
    WHERE statement LIKE '%{token}%' AND name LIKE '\\_\\_asyncpg%'"""


class _Connection(asyncpg.Connection):
    def get_reset_query(self) -> str:
        """Nothing to undo: no statement of ours leaves anything in a session.  Saves a round trip a call."""
        return ""

    _get_reset_query = get_reset_query
    """Its name before asyncpg 0.30."""


class AsyncpgAdapter:
    """`PostgresAdapter` over an asyncpg pool, for one event loop; see `HomeLoop`.

    Args:
        pool: Yours; `close` closes it.  See `from_dsn` for one that is opened by the first call.
        where: The server's name in errors.
        timeout: Seconds for one statement, and for waiting for a connection.
    """

    def __init__(
        self,
        pool: "asyncpg.Pool[Any] | Callable[[], Awaitable[Connections]]",
        *,
        where: str = "the given pool",
        timeout: float = 10.0,
    ) -> None:
        self.where, self._timeout = where, timeout
        self._connections: Connections | None = None
        self._make: Callable[[], Awaitable[Connections]] | None = None
        if callable(pool):
            self._make = pool
        else:
            self._connections = Connections(pool, None, timeout)
        self._opening = asyncio.Lock()
        self._home = HomeLoop(f"PostgreSQL at {where}")

    @classmethod
    def from_dsn(
        cls,
        dsn: str,
        *,
        statement_cache_size: int | None = None,
        max_connections: int = 16,
        timeout: float = 10.0,
    ) -> "AsyncpgAdapter":
        """An adapter that connects when it is first used, on the loop that runs then.

        Args:
            dsn: ``postgresql://user:password@host:port/database``.
            statement_cache_size: How many statements a connection keeps prepared by name.  None: 256, and
                0 where PgBouncer or the like stands between, which may give each transaction another
                connection; that is found out when it connects.
            max_connections: At most so many at a time; more callers wait.
            timeout: Seconds for one statement, and for waiting for a connection.

        Raises:
            InvalidConfigError: The DSN is none.
        """
        where = _where(dsn)

        async def make() -> Connections:
            size = statement_cache_size
            if size is None:
                size = 0 if await _is_pooled(dsn, timeout, where) else _STATEMENTS
            pool = await asyncpg.create_pool(
                dsn,
                min_size=0,
                max_size=max_connections,
                command_timeout=timeout,
                timeout=timeout,
                statement_cache_size=size,
                connection_class=_Connection,
            )
            return Connections(pool, max_connections, timeout)

        return cls(make, where=where, timeout=timeout)

    async def fetch(self, query: str, *args: Any, timeout: float | None = None) -> list[Any]:
        """See `PostgresExecutor.fetch`."""
        rows: list[Any] = await self._repeated("fetch", query, args, timeout)
        return rows

    async def fetchrow(self, query: str, *args: Any, timeout: float | None = None) -> Row | None:
        """See `PostgresExecutor.fetchrow`."""
        row: Row | None = await self._repeated("fetchrow", query, args, timeout)
        return row

    async def fetchval(self, query: str, *args: Any, timeout: float | None = None) -> Any:
        """See `PostgresExecutor.fetchval`."""
        return await self._repeated("fetchval", query, args, timeout)

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        """See `PostgresExecutor.execute`."""
        status: str = await self._repeated("execute", query, args, timeout)
        return status

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[PostgresExecutor]:
        """See `PostgresAdapter.transaction`."""
        try:
            async with self._taken() as connection, connection.transaction():
                yield _Transaction(connection, self.where, self._timeout)
        except DRIVER_ERRORS as error:
            raise translate(error, self.where) from error

    async def loses_statements(self) -> bool:
        """Whether statements are prepared by name behind a pooler that does not keep them.

        Two connections of ours that answer from one process of the server share it: the pooler gives each
        transaction another one.  Where it keeps prepared statements (PgBouncer from 1.21), they have names of
        its own in the server.  False where that cannot be seen at once: the pool has one connection, or
        others use all of them.
        """
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                if (await self._opened()).size < 2:
                    return False
                async with self._taken() as one, self._taken() as other:
                    first, second = [await each.fetchval(_PROCESS) for each in (one, other)]
                    if first != second:
                        return False
                    # Its own text finds the statement that asks, and none of another client's.
                    return bool(await other.fetchval(_PREPARED.format(token=uuid.uuid4().hex)))
        except TimeoutError:
            return False
        except DRIVER_ERRORS as error:
            if state_of(error) in LOST_STATEMENT:
                return True
            raise translate(error, self.where) from error

    async def close(self) -> None:
        """Close all connections; with `from_dsn`, the next use opens new ones."""
        self._enter()
        connections, self._connections = self._connections, None
        self._home.leave()
        if connections is not None:
            await connections.close()

    def _enter(self) -> None:
        if self._home.claim() and self._make is not None:
            # Left to the collector: only the loop that opened them, which has ended, could close them.
            self._connections, self._opening = None, asyncio.Lock()

    async def _opened(self) -> Connections:
        if self._connections is not None:
            return self._connections
        if self._make is None:
            raise StoreUnavailableError(f"PostgreSQL at {self.where}: the given pool was closed")
        async with self._opening:
            if self._connections is None:
                self._connections = await self._make()
        return self._connections

    @asynccontextmanager
    async def _taken(self) -> AsyncIterator[Any]:
        self._enter()
        connections = await self._opened()
        connection = await connections.take()
        ended_by: BaseException | None = None
        try:
            yield connection
        except BaseException as error:
            ended_by = error
            raise
        finally:
            await connections.give_back(connection, ended_by)

    async def _repeated(self, method: str, query: str, args: tuple[Any, ...], timeout: float | None) -> Any:
        _check_arguments(args)
        for attempt in range(TRIES):
            try:
                return await self._once(method, query, args, timeout or self._timeout)
            except DRIVER_ERRORS as error:
                if state_of(error) not in REPEATED or attempt == TRIES - 1:
                    raise translate(error, self.where) from error
            await pause(attempt)
        raise AssertionError("unreachable")

    async def _once(self, method: str, query: str, args: tuple[Any, ...], timeout: float) -> Any:
        # As `_taken` does it; a context manager would cost a tenth of the statement.
        self._enter()
        connections = self._connections or await self._opened()
        connection = await connections.take()
        try:
            result = await getattr(connection, method)(query, *args, timeout=timeout)
        except BaseException as error:
            await connections.give_back(connection, error)
            raise
        await connections.give_back(connection, None)
        return result


Database: TypeAlias = Union[PostgresAdapter, "asyncpg.Pool[Any]"]
"""A database as stores take it: an adapter, or a pool of one's own."""


def as_adapter(database: Database, *, timeout: float = 10.0) -> PostgresAdapter:
    """The adapter that is given, or one over the given pool."""
    return AsyncpgAdapter(database, timeout=timeout) if isinstance(database, asyncpg.Pool) else database


class _Transaction:
    """`PostgresExecutor` on the connection of one transaction."""

    def __init__(self, connection: Any, where: str, timeout: float) -> None:
        self._connection, self._where, self._timeout = connection, where, timeout

    async def fetch(self, query: str, *args: Any, timeout: float | None = None) -> list[Any]:
        """See `PostgresExecutor.fetch`."""
        rows: list[Any] = await self._once("fetch", query, args, timeout)
        return rows

    async def fetchrow(self, query: str, *args: Any, timeout: float | None = None) -> Row | None:
        """See `PostgresExecutor.fetchrow`."""
        row: Row | None = await self._once("fetchrow", query, args, timeout)
        return row

    async def fetchval(self, query: str, *args: Any, timeout: float | None = None) -> Any:
        """See `PostgresExecutor.fetchval`."""
        return await self._once("fetchval", query, args, timeout)

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        """See `PostgresExecutor.execute`."""
        status: str = await self._once("execute", query, args, timeout)
        return status

    async def _once(self, method: str, query: str, args: tuple[Any, ...], timeout: float | None) -> Any:
        _check_arguments(args)
        try:
            return await getattr(self._connection, method)(query, *args, timeout=timeout or self._timeout)
        except DRIVER_ERRORS as error:
            raise translate(error, self._where) from error


async def _is_pooled(dsn: str, timeout: float, where: str) -> bool:
    """Whether a pooler stands between: it greets its clients with a process id that is not the server's."""
    connection = await asyncpg.connect(dsn, timeout=timeout, command_timeout=timeout, statement_cache_size=0)
    try:
        pooled: bool = await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid()
    finally:
        await connection.close(timeout=timeout)
    if pooled:
        logger.info("PostgreSQL at %s: a pooler stands between; no statement is prepared by name", where)
    return pooled


def _check_arguments(args: tuple[Any, ...]) -> None:
    # The server would refuse such text in the middle of a transaction, and quote it in its message.
    for number, value in enumerate(args, 1):
        if isinstance(value, str):
            _check_text(value, number)
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, str):
                    _check_text(each, number)


def _check_text(value: str, number: int) -> None:
    if not value.isascii() or "\x00" in value:
        check_text(value, f"${number}")


def _where(dsn: str) -> str:
    try:
        parts = urlsplit(dsn)
        host = parts.hostname or "a socket"
        place = f"{host}:{parts.port or 5432}{parts.path}"
    except ValueError:
        raise InvalidConfigError(
            "postgres_dsn: not a URL; its text may hold a secret and is not shown"
        ) from None
    if parts.scheme not in {"postgresql", "postgres"}:
        raise InvalidConfigError("postgres_dsn: postgresql:// or postgres:// expected")
    return place
