"""`PostgresDatabase` on asyncpg: what the stores need, connections, time-outs, and what errors mean."""

import asyncio
import logging
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Protocol, TypeAlias, TypeVar, Union
from urllib.parse import urlsplit

import asyncpg

from helix_temporal._retries import retry_pause
from helix_temporal._tls_failures import TlsSettings, find_tls_failure
from helix_temporal.errors import (
    HelixError,
    InvalidConfigError,
    InvalidRequestError,
    SchemaVersionError,
    StoreCorruptError,
    StoreUnavailableError,
    TooLargeError,
    UnsupportedServerError,
)
from helix_temporal.models.base import check_text
from helix_temporal.stores._home_loop import HomeLoop

T = TypeVar("T")

TRIES: Final = 6
"""Of a statement or transaction that others keep getting in the way of."""

REPEATED: Final = frozenset({"40001", "40P01", "23505"})
"""Serialization failure, deadlock, and a row that somebody else inserted between the look and the write:
run again, the statement sees what is there now."""


class DatabaseRow(Protocol):
    """One row: values by the names of their columns."""

    def __getitem__(self, name: str, /) -> Any:
        """The value of one column."""
        ...


class PostgresExecutor(Protocol):
    """Runs statements: one by one, or inside one transaction.

    Arguments are ``$1`` and so on.  ``timeout`` is in seconds; None means the database's own.  Text with NUL
    or a lone surrogate is `InvalidMessageError` before anything is sent.

    Raises:
        StoreUnavailableError: The server is not there, starting, stopping, full, too slow, or takes no
            writes now; what was sent may have taken effect or not.
        UnsupportedServerError: It refused a statement for good.
        SchemaVersionError: A table or column is missing.
        InvalidRequestError, TooLargeError: It refused a value.
        InvalidConfigError: It refused the user or the database.
    """

    async def fetch(self, query: str, *args: Any, timeout: float | None = None) -> list[Any]:
        """All rows; see `DatabaseRow`."""
        ...

    async def fetchrow(self, query: str, *args: Any, timeout: float | None = None) -> DatabaseRow | None:
        """The first row, or None."""
        ...

    async def fetchval(self, query: str, *args: Any, timeout: float | None = None) -> Any:
        """The first column of the first row, or None."""
        ...

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        """The server's word for what was done; without arguments the text may hold several statements."""
        ...


class PostgresDatabase(PostgresExecutor, Protocol):
    """A database.  Each statement outside a transaction is one of its own and may use any connection.

    Nothing here or above relies on the state of a session, so a pooler in transaction mode may stand
    between.  A statement that lost to another one (serialization failure, deadlock, a row inserted
    meanwhile) is run again a few times; inside a transaction only `run_in_transaction` can do that.

    Attributes:
        where: The server's name in errors, without credentials.
    """

    where: str

    def transaction(self) -> AbstractAsyncContextManager[PostgresExecutor]:
        """One transaction on one connection: committed at the end, rolled back by any exception."""
        ...

    async def close(self) -> None:
        """Give back all connections."""
        ...


async def run_in_transaction(
    database: PostgresDatabase, work: Callable[[PostgresExecutor], Awaitable[T]]
) -> T:
    """Run ``work`` in a transaction, from its start again where it lost to another one.

    Raises:
        StoreUnavailableError: It lost every time; or as for `PostgresExecutor`.
    """
    for attempt in range(TRIES):
        try:
            async with database.transaction() as transaction:
                return await work(transaction)
        except StoreUnavailableError as error:
            if error.facts.get("sqlstate") not in REPEATED or attempt == TRIES - 1:
                raise
        await asyncio.sleep(retry_pause(attempt, first=0.01, longest=0.2))
    raise AssertionError("unreachable")


DRIVER_ERRORS: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
"""All that a call of the driver raises when something is wrong, time-outs included.

The internal one: the server said good-bye on an idle connection, and has not closed it yet.
"""

_PASSING: Final = frozenset(
    {
        "08",  # connection
        "40",  # transaction rolled back
        "53",  # connections, memory, disk
        "57",  # operator intervention: shutdown, start-up, cancelled
        "55",  # lock not available
        "58",  # the server's own input and output
    }
)
_LACKING: Final = "42501"
_TABLE: Final = re.compile(r"permission denied for (?:table|relation) (\w+)")
_IN_SCHEMA: Final = re.compile(r'permission denied for schema "?(\w+)')
_OWNED: Final = re.compile(r'must be owner of (?:table|relation|index) "?(\w+)')
_NO_SCHEMA: Final = "3F000"
_PROTOCOL: Final = "08P01"
_PARAMETER: Final = re.compile(r"unsupported startup parameter(?: in options)?: (\w+)")
_NO_DATABASE: Final = re.compile("no such database|database .* does not exist")
_NO_LOGIN: Final = re.compile("no such user|(?:password|SASL) authentication failed", re.IGNORECASE)
_BUSY_POOLER: Final = re.compile(
    "time ?-?out|no more connections|cannot connect|server (?:login|conn|closed)|shut|paus|disabled|crash"
    "|close|closing|terminat|resource|memory|does not allow",
    re.IGNORECASE,
)
"""What PgBouncer says while it, or the server behind it, is busy, starting or stopping."""
_SHOWN: Final = 200
"""Characters of a server's text that an error shows."""
_NO_TLS: Final = re.compile("(?:SSL|TLS)(?: connection)? required")
_TLS: Final = TlsSettings(
    files="sslrootcert, sslcert and sslkey in postgres_dsn",
    trust="add sslrootcert=<file> to postgres_dsn",
    identify="add sslcert=<file>&sslkey=<file> to postgres_dsn",
)
_SOCKET: Final = "a socket"
_RIGHTS: Final = frozenset({"28", "3D", "3F", _LACKING})
LOST_STATEMENT: Final = frozenset({"26000", "42P05"})
"""A prepared statement is not there, or is there already: it was another connection's."""
_SCHEMA: Final = frozenset({"42P01", "42703", "42883"})
_DAMAGED: Final = frozenset({"XX001", "XX002"})
_READ_ONLY: Final = "25006"


def translate_error(error: Exception, where: str) -> HelixError:
    """Our error for one of the driver's; texts of the server, which may quote values, stay out of it.

    Args:
        error: What the driver raised, or a time-out.
        where: The server's address, without credentials.
    """
    state, name = state_of(error), type(error).__name__
    found = f"{state} {name}" if state else name
    if state == _READ_ONLY:
        return StoreUnavailableError(
            f"PostgreSQL at {where} is read-only now ({found}): a standby after a failover, or"
            " default_transaction_read_only is on; repeat the call later",
            sqlstate=state,
        )
    if (wrong := _find_wrong_setting(state, str(error))) is not None:
        return InvalidConfigError(f"PostgreSQL at {where} {wrong} ({found})", sqlstate=state)
    if state in REPEATED or state[:2] in _PASSING:
        return StoreUnavailableError(
            f"PostgreSQL at {where} cannot do it now ({found}); repeat the call later", sqlstate=state
        )
    if state in _RIGHTS or state[:2] in _RIGHTS:
        return InvalidConfigError(
            f"PostgreSQL at {where} refused the user, the database or a right ({found})", sqlstate=state
        )
    if state in _DAMAGED:
        return StoreCorruptError(
            f"PostgreSQL at {where} found a page or an index of its own damaged ({found}); restore it",
            sqlstate=state,
        )
    if state in LOST_STATEMENT:
        return statement_lost(where, f"lost a prepared statement ({found})", sqlstate=state)
    if state in _SCHEMA:
        return SchemaVersionError(
            f"PostgreSQL at {where} lacks a table or column ({found}); run: helix-temporal migrate",
            sqlstate=state,
        )
    return _refusal_error(error, where, state, found)


def _find_wrong_setting(state: str, text: str) -> str | None:
    """What a setting or a right has wrong, by the server's words; names alone are taken of them."""
    if state == _PROTOCOL:
        return _find_pooler_refusal(text)
    if state == _NO_SCHEMA:
        return (
            "finds none of the schemas that search_path names, or the user may not use them; create the"
            " schema and grant USAGE on it, or correct search_path"
        )
    if state != _LACKING:
        return None
    if table := _TABLE.search(text):
        return (
            f"refuses the user a right on {table[1]}; grant SELECT, INSERT, UPDATE, DELETE on all tables of"
            " the prefix"
        )
    if schema := _IN_SCHEMA.search(text):
        return (
            f"refuses the user a right in schema {schema[1]}; helix-temporal migrate needs GRANT USAGE,"
            f" CREATE ON SCHEMA {schema[1]} TO <user>, all others USAGE"
        )
    if owned := _OWNED.search(text):
        return f"lets only the owner of {owned[1]} change it; run helix-temporal migrate as that user"
    return None


def _find_pooler_refusal(text: str) -> str | None:
    """PgBouncer has one code for all that it says itself, passing or not."""
    if parameter := _PARAMETER.search(text):
        return (
            f"is behind PgBouncer, which refuses the startup parameter {parameter[1]}; add it to"
            " ignore_startup_parameters there, or take it out of postgres_dsn"
        )
    if _NO_DATABASE.search(text):
        return (
            "is behind PgBouncer, which has no such database; correct its name in postgres_dsn, or add it to"
            " [databases] there"
        )
    if _NO_LOGIN.search(text):
        return "is behind PgBouncer, which refuses the user or the password; correct postgres_dsn"
    if _NO_TLS.search(text):
        return "is behind PgBouncer, which takes only TLS; write sslmode=require in postgres_dsn"
    return None


def find_refused_connection(error: BaseException, where: str, *, let_in: bool) -> HelixError | None:
    """The error for a pooler that takes no connection of ours, in its words; None for any other trouble.

    Before there is a connection no statement was sent: the text can quote no value, and never has a password.
    While its server restarts, PgBouncer with ``auth_query`` has the words of a wrong setting, too.

    Args:
        error: What the driver raised while it connected.
        where: The server's address, without credentials.
        let_in: It has taken connections before, so that the trouble may pass.
    """
    text = str(error)
    if state_of(error) != _PROTOCOL or _find_pooler_refusal(text) is not None or _BUSY_POOLER.search(text):
        return None
    shown = "".join(each if each.isprintable() else "?" for each in text[:_SHOWN])
    kind = StoreUnavailableError if let_in else InvalidConfigError
    return kind(
        f"PostgreSQL at {where} refused the connection: {shown!r} ({_PROTOCOL}); correct the user in"
        " postgres_dsn, or auth_type, auth_file and [databases] of the pooler there",
        sqlstate=_PROTOCOL,
    )


def statement_lost(where: str, what: str, **facts: str) -> InvalidConfigError:
    """Statements are prepared by name behind a pooler that does not keep them."""
    return InvalidConfigError(
        f"PostgreSQL at {where} {what}: a pooler in transaction mode stands"
        " between; unset HELIX_POSTGRES_STATEMENT_CACHE_SIZE or set it to 0 (a pool of your own:"
        " statement_cache_size=0)",
        **facts,
    )


def has_moved(error: BaseException | None) -> bool:
    """Whether the server says that it takes no writes: it is not the primary, or not any more.

    A new connection to the same address may then lead to another server.

    Args:
        error: The driver's, or ours for it.
    """
    if isinstance(error, HelixError):
        return error.facts.get("sqlstate") == _READ_ONLY
    return error is not None and state_of(error) == _READ_ONLY


def _refusal_error(error: Exception, where: str, state: str, found: str) -> HelixError:
    if state.startswith("54"):
        return TooLargeError(
            f"PostgreSQL at {where} refused something for its size ({found})", sqlstate=state
        )
    if state.startswith("22") or isinstance(error, asyncpg.DataError):
        return InvalidRequestError(f"PostgreSQL at {where} refused a value ({found})", sqlstate=state)
    if isinstance(error, asyncpg.ClientConfigurationError):
        lacks = "root certificate file" in str(error)
        hint = "; add sslrootcert=<file>, of who signed the server's certificate" if lacks else ""
        return InvalidConfigError(f"postgres_dsn: refused by the driver ({found}){hint}")
    if isinstance(error, ConnectionError) and "rejected SSL upgrade" in str(error):
        return InvalidConfigError(
            f"PostgreSQL at {where} speaks without TLS, which sslmode in postgres_dsn asks for; switch it"
            " on in the server, or write sslmode=disable if the network between is yours alone"
        )
    # A socket of Unix that is not there may come later.
    failure = None if state or where.startswith(_SOCKET) else find_tls_failure(error, _TLS)
    if failure is not None:
        kind = StoreUnavailableError if failure.passes else InvalidConfigError
        return kind(f"PostgreSQL at {where} {failure.told}")
    if not state:
        return StoreUnavailableError(f"PostgreSQL at {where} did not answer ({found}); repeat the call later")
    return UnsupportedServerError(f"PostgreSQL at {where} refused a statement ({found})", sqlstate=state)


def state_of(error: BaseException) -> str:
    """The SQLSTATE of a driver's error, empty if the server never said any."""
    state: object = getattr(error, "sqlstate", None)
    return state if isinstance(state, str) else ""


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

    async def take_connection(self) -> Any:
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


class AsyncpgDatabase:
    """`PostgresDatabase` over an asyncpg pool, for one event loop; see `HomeLoop`.

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
        self._opening, self._let_in = asyncio.Lock(), False
        self._home = HomeLoop(f"PostgreSQL at {where}")

    @classmethod
    def from_dsn(
        cls,
        dsn: str,
        *,
        statement_cache_size: int | None = None,
        max_connections: int = 16,
        timeout: float = 10.0,
    ) -> "AsyncpgDatabase":
        """A database that connects when it is first used, on the loop that runs then.

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
        where = _address_of(dsn)

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
        rows: list[Any] = await self._send_repeatedly("fetch", query, args, timeout)
        return rows

    async def fetchrow(self, query: str, *args: Any, timeout: float | None = None) -> DatabaseRow | None:
        """See `PostgresExecutor.fetchrow`."""
        row: DatabaseRow | None = await self._send_repeatedly("fetchrow", query, args, timeout)
        return row

    async def fetchval(self, query: str, *args: Any, timeout: float | None = None) -> Any:
        """See `PostgresExecutor.fetchval`."""
        return await self._send_repeatedly("fetchval", query, args, timeout)

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        """See `PostgresExecutor.execute`."""
        status: str = await self._send_repeatedly("execute", query, args, timeout)
        return status

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[PostgresExecutor]:
        """See `PostgresDatabase.transaction`."""
        try:
            async with self._take_connection() as connection, connection.transaction():
                yield _Transaction(connection, self.where, self._timeout)
        except DRIVER_ERRORS as error:
            raise translate_error(error, self.where) from error

    async def loses_statements(self) -> bool:
        """Whether statements are prepared by name behind a pooler that does not keep them.

        Two connections of ours that answer from one process of the server share it: the pooler gives each
        transaction another one.  Where it keeps prepared statements (PgBouncer from 1.21), they have names of
        its own in the server.  False where that cannot be seen at once: the pool has one connection, or
        others use all of them.
        """
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                if (await self._open_connections()).size < 2:
                    return False
                async with self._take_connection() as one, self._take_connection() as other:
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
            raise translate_error(error, self.where) from error

    async def close(self) -> None:
        """Close all connections; with `from_dsn`, the next use opens new ones."""
        self._claim_loop()
        connections, self._connections = self._connections, None
        self._home.release_loop()
        if connections is not None:
            await connections.close()

    def _claim_loop(self) -> None:
        if self._home.claim_loop() and self._make is not None:
            # Left to the collector: only the loop that opened them, which has ended, could close them.
            self._connections, self._opening = None, asyncio.Lock()

    async def _open_connections(self) -> Connections:
        if self._connections is not None:
            return self._connections
        if self._make is None:
            raise StoreUnavailableError(f"PostgreSQL at {self.where}: the given pool was closed")
        async with self._opening:
            if self._connections is None:
                self._connections = await self._connect(self._make())
        return self._connections

    async def _connect(self, connecting: Awaitable[T]) -> T:
        """What comes of connecting; a refusal that does not pass is an error of settings."""
        try:
            return await connecting
        except asyncpg.PostgresError as error:
            refused = find_refused_connection(error, self.where, let_in=self._let_in)
            if refused is None:
                raise
            raise refused from error

    @asynccontextmanager
    async def _take_connection(self) -> AsyncIterator[Any]:
        self._claim_loop()
        connections = await self._open_connections()
        connection = await self._connect(connections.take_connection())
        self._let_in = True
        ended_by: BaseException | None = None
        try:
            yield connection
        except BaseException as error:
            ended_by = error
            raise
        finally:
            await connections.give_back(connection, ended_by)

    async def _send_repeatedly(
        self, method: str, query: str, args: tuple[Any, ...], timeout: float | None
    ) -> Any:
        _check_arguments(args)
        for attempt in range(TRIES):
            try:
                return await self._send_once(method, query, args, timeout or self._timeout)
            except DRIVER_ERRORS as error:
                if state_of(error) not in REPEATED or attempt == TRIES - 1:
                    raise translate_error(error, self.where) from error
            await asyncio.sleep(retry_pause(attempt, first=0.01, longest=0.2))
        raise AssertionError("unreachable")

    async def _send_once(self, method: str, query: str, args: tuple[Any, ...], timeout: float) -> Any:
        # As `_take_connection` does it; a context manager would cost a tenth of the statement.
        self._claim_loop()
        connections = self._connections or await self._open_connections()
        connection = await self._connect(connections.take_connection())
        self._let_in = True
        try:
            result = await getattr(connection, method)(query, *args, timeout=timeout)
        except BaseException as error:
            await connections.give_back(connection, error)
            raise
        await connections.give_back(connection, None)
        return result


DatabaseOrPool: TypeAlias = Union[PostgresDatabase, "asyncpg.Pool[Any]"]
"""A database as stores take it, or a pool of one's own."""


def as_database(database: DatabaseOrPool, *, timeout: float = 10.0) -> PostgresDatabase:
    """The database that is given, or one over the given pool."""
    return AsyncpgDatabase(database, timeout=timeout) if isinstance(database, asyncpg.Pool) else database


class _Transaction:
    """`PostgresExecutor` on the connection of one transaction."""

    def __init__(self, connection: Any, where: str, timeout: float) -> None:
        self._connection, self._where, self._timeout = connection, where, timeout

    async def fetch(self, query: str, *args: Any, timeout: float | None = None) -> list[Any]:
        """See `PostgresExecutor.fetch`."""
        rows: list[Any] = await self._send_once("fetch", query, args, timeout)
        return rows

    async def fetchrow(self, query: str, *args: Any, timeout: float | None = None) -> DatabaseRow | None:
        """See `PostgresExecutor.fetchrow`."""
        row: DatabaseRow | None = await self._send_once("fetchrow", query, args, timeout)
        return row

    async def fetchval(self, query: str, *args: Any, timeout: float | None = None) -> Any:
        """See `PostgresExecutor.fetchval`."""
        return await self._send_once("fetchval", query, args, timeout)

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        """See `PostgresExecutor.execute`."""
        status: str = await self._send_once("execute", query, args, timeout)
        return status

    async def _send_once(self, method: str, query: str, args: tuple[Any, ...], timeout: float | None) -> Any:
        _check_arguments(args)
        try:
            return await getattr(self._connection, method)(query, *args, timeout=timeout or self._timeout)
        except DRIVER_ERRORS as error:
            raise translate_error(error, self._where) from error


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


def _address_of(dsn: str) -> str:
    try:
        parts = urlsplit(dsn)
        host = parts.hostname or _SOCKET
        place = f"{host}:{parts.port or 5432}{parts.path}"
    except ValueError:
        raise InvalidConfigError(
            "postgres_dsn: not a URL; its text may hold a secret and is not shown"
        ) from None
    if parts.scheme not in {"postgresql", "postgres"}:
        raise InvalidConfigError("postgres_dsn: postgresql:// or postgres:// expected")
    return place
