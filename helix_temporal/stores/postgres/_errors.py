"""What a server's or the driver's error means for the caller."""

import re
from typing import Final

import asyncpg

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
from helix_temporal.stores.postgres._protocol import REPEATED

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
_RIGHTS: Final = frozenset({"28", "3D", "3F", _LACKING})
LOST_STATEMENT: Final = frozenset({"26000", "42P05"})
"""A prepared statement is not there, or is there already: it was another connection's."""
_SCHEMA: Final = frozenset({"42P01", "42703", "42883"})
_DAMAGED: Final = frozenset({"XX001", "XX002"})
_READ_ONLY: Final = "25006"


def translate(error: Exception, where: str) -> HelixError:
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
    if state in REPEATED or state[:2] in _PASSING:
        return StoreUnavailableError(
            f"PostgreSQL at {where} cannot do it now ({found}); repeat the call later", sqlstate=state
        )
    if state == _LACKING and (table := _TABLE.search(str(error))):
        return InvalidConfigError(
            f"PostgreSQL at {where} refuses the user a right on {table[1]} ({found});"
            " grant SELECT, INSERT, UPDATE, DELETE on all tables of the prefix",
            sqlstate=state,
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
    return _refused(error, where, state, found)


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


def _refused(error: Exception, where: str, state: str, found: str) -> HelixError:
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
    if not state:
        return StoreUnavailableError(f"PostgreSQL at {where} did not answer ({found}); repeat the call later")
    return UnsupportedServerError(f"PostgreSQL at {where} refused a statement ({found})", sqlstate=state)


def state_of(error: BaseException) -> str:
    """The SQLSTATE of a driver's error, empty if the server never said any."""
    state: object = getattr(error, "sqlstate", None)
    return state if isinstance(state, str) else ""
