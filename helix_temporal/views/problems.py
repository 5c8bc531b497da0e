"""What a view tells instead of failing: a store that is away, an archive that is silent, damage."""

from typing import Final

from pydantic import ValidationError

from helix_temporal.errors import (
    ArchiveCorruptError,
    ArchiveError,
    ColdRegressedError,
    HelixError,
    StoreCorruptError,
    StoreUnavailableError,
    UnsupportedFormatError,
)

PARTIAL_READ_ERRORS: Final = (StoreUnavailableError, StoreCorruptError, ArchiveError, ValidationError)
"""What a view tells of in `problem`, and shows the rest."""
_DAMAGE: Final = (StoreCorruptError, ArchiveCorruptError, ColdRegressedError, ValidationError)
UNREADABLE: Final = (*_DAMAGE, UnsupportedFormatError)
"""What is wrong with one session, however often it is read; unlike a store that is away."""


def as_store_error(error: Exception, what: str) -> Exception:
    """The error to raise where a read has no part to show: what a model refuses is damage."""
    if isinstance(error, ValidationError):
        return StoreCorruptError(f"{what}: {describe_problem(error)}")
    return error


def describe_problem(error: BaseException) -> str:
    """What kept a view from being whole, in a line, without what was read."""
    if isinstance(error, HelixError):
        return f"{type(error).__name__}: {error}"[:500]
    if isinstance(error, ValidationError):
        # Its own text has values in it.
        return f"ValidationError: what is stored is no {error.title}"
    return type(error).__name__


def describe_unread(error: BaseException) -> str:
    """Why a part of a thread is not shown: it is damaged, or it cannot be read now."""
    return f"{'damaged' if isinstance(error, _DAMAGE) else 'not all can be read'}: {describe_problem(error)}"
