"""The exit statuses of all commands, as one table; scripts rely on them."""

import asyncio
from collections.abc import Iterable
from enum import IntEnum
from typing import Final

from helix_temporal.errors import (
    ArchiveAccessError,
    ArchiveCorruptError,
    ColdRegressedError,
    ConflictError,
    ForeignDeploymentError,
    HelixError,
    InvalidConfigError,
    InvalidCursorError,
    InvalidIdError,
    InvalidMessageError,
    InvalidRequestError,
    LegacyWriterActiveError,
    NotFoundError,
    NotServedError,
    SessionExpiredError,
    SessionFileError,
    StoreCorruptError,
    StoreUnavailableError,
    StreamDroppedError,
    TooLargeError,
)


class ExitStatus(IntEnum):
    """How a command ended.

    Attributes:
        DONE: All of it is done; also where the reader of a pipe has had enough.
        FAILED: It failed in a way that no other status names.
        USAGE: Arguments, options or ``HELIX_…`` variables are not right; nothing was done.
        PARTLY: Some of it is done, some failed; what failed is named on standard error.  Of ``doctor``: there
            are warnings, and nothing failed.
        NOT_FOUND: What was named is not there.
        REFUSED: What is stored forbids it: a hold, a fence, a lock, an id that is taken.
        DAMAGED: What was named is damaged.
        STORE_AWAY: A server does not answer; the same command may succeed later.
        LOCKED_OUT: A key is missing, or is refused.
        INTERRUPTED: Ctrl-C.
    """

    DONE = 0
    FAILED = 1
    USAGE = 2
    PARTLY = 3
    NOT_FOUND = 4
    REFUSED = 5
    DAMAGED = 6
    STORE_AWAY = 7
    LOCKED_OUT = 8
    INTERRUPTED = 130


# The first that fits: classes before their bases.
_TABLE: Final[tuple[tuple[tuple[type[BaseException], ...], ExitStatus], ...]] = (
    ((KeyboardInterrupt, asyncio.CancelledError), ExitStatus.INTERRUPTED),
    ((BrokenPipeError,), ExitStatus.DONE),
    ((StoreUnavailableError, StreamDroppedError), ExitStatus.STORE_AWAY),
    ((NotFoundError,), ExitStatus.NOT_FOUND),
    ((ForeignDeploymentError, LegacyWriterActiveError, SessionExpiredError), ExitStatus.REFUSED),
    ((ConflictError,), ExitStatus.REFUSED),
    ((ArchiveCorruptError, ColdRegressedError, SessionFileError, StoreCorruptError), ExitStatus.DAMAGED),
    ((ArchiveAccessError,), ExitStatus.LOCKED_OUT),
    ((NotServedError,), ExitStatus.FAILED),
    ((InvalidConfigError, InvalidCursorError, InvalidIdError), ExitStatus.USAGE),
    ((InvalidMessageError, InvalidRequestError, TooLargeError), ExitStatus.USAGE),
    ((HelixError,), ExitStatus.FAILED),
    ((ConnectionError, TimeoutError), ExitStatus.STORE_AWAY),
)

_BY_RPC_STATUS: Final = {
    "UNAVAILABLE": ExitStatus.STORE_AWAY,
    "DEADLINE_EXCEEDED": ExitStatus.STORE_AWAY,
    "NOT_FOUND": ExitStatus.NOT_FOUND,
    "ALREADY_EXISTS": ExitStatus.REFUSED,
    "PERMISSION_DENIED": ExitStatus.LOCKED_OUT,
    "UNAUTHENTICATED": ExitStatus.LOCKED_OUT,
}


def find_status(error: BaseException) -> ExitStatus:
    """The status of a command that ends by this error; of a group that of the first error in it."""
    if isinstance(error, BaseExceptionGroup):
        return find_status(error.exceptions[0])
    for kinds, status in _TABLE:
        if isinstance(error, kinds):
            return status
    return _find_rpc_status(error)


def sum_statuses(done: int, failed: Iterable[ExitStatus]) -> ExitStatus:
    """The status of work on many things.

    Args:
        done: How many are done.
        failed: The status of each that failed: those of one alone stay, of some that failed it is `PARTLY`.
    """
    statuses = list(failed)
    if not statuses:
        return ExitStatus.DONE
    return statuses[0] if len(statuses) == 1 and not done else ExitStatus.PARTLY


def _find_rpc_status(error: BaseException) -> ExitStatus:
    """Of an answer of Temporal's, which is known by its attribute: its SDK takes a second to import."""
    name = getattr(getattr(error, "status", None), "name", "")
    return _BY_RPC_STATUS.get(name, ExitStatus.FAILED)
