"""What the stores need of PostgreSQL: statements and transactions, whatever the driver."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol, TypeVar

from helix_temporal.errors import StoreUnavailableError

T = TypeVar("T")

TRIES: Final = 6
"""Of a statement or transaction that others keep getting in the way of."""

REPEATED: Final = frozenset({"40001", "40P01", "23505"})
"""Serialization failure, deadlock, and a row that somebody else inserted between the look and the write:
run again, the statement sees what is there now."""


class Row(Protocol):
    """One row: values by the names of their columns."""

    def __getitem__(self, name: str, /) -> Any:
        """The value of one column."""
        ...


class PostgresExecutor(Protocol):
    """Runs statements: one by one, or inside one transaction.

    Arguments are ``$1`` and so on.  ``timeout`` is in seconds; None means the adapter's own.  Text with NUL
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
        """All rows; see `Row`."""
        ...

    async def fetchrow(self, query: str, *args: Any, timeout: float | None = None) -> Row | None:
        """The first row, or None."""
        ...

    async def fetchval(self, query: str, *args: Any, timeout: float | None = None) -> Any:
        """The first column of the first row, or None."""
        ...

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        """The server's word for what was done; without arguments the text may hold several statements."""
        ...


class PostgresAdapter(PostgresExecutor, Protocol):
    """A database.  Each statement outside a transaction is one of its own and may use any connection.

    Nothing here or above relies on the state of a session, so a pooler in transaction mode may stand
    between.  A statement that lost to another one (serialization failure, deadlock, a row inserted
    meanwhile) is run again a few times; inside a transaction only `transact` can do that.

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


async def transact(adapter: PostgresAdapter, work: Callable[[PostgresExecutor], Awaitable[T]]) -> T:
    """Run ``work`` in a transaction, from its start again where it lost to another one.

    Raises:
        StoreUnavailableError: It lost every time; or as for `PostgresExecutor`.
    """
    for attempt in range(TRIES):
        try:
            async with adapter.transaction() as transaction:
                return await work(transaction)
        except StoreUnavailableError as error:
            if error.facts.get("sqlstate") not in REPEATED or attempt == TRIES - 1:
                raise
        await pause(attempt)
    raise AssertionError("unreachable")


async def pause(attempt: int) -> None:
    """Wait a little, differently for each who lost, and longer with each attempt."""
    await asyncio.sleep(random.uniform(0.2, 1.0) * min(0.01 * 2**attempt, 0.2))  # noqa: S311 (jitter)
