"""Errors that are answers do not fill a worker's log, nor its counts of failures."""

import pytest
from temporalio.exceptions import ApplicationErrorCategory

from helix_temporal.activities._runtime import application_error
from helix_temporal.errors import (
    ArchiveCorruptError,
    HeadMovedError,
    HelixError,
    PayloadNotFoundError,
    SessionNotFoundError,
    StoreUnavailableError,
    ThreadNotFoundError,
)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (HeadMovedError, True),
        (SessionNotFoundError, True),
        (ThreadNotFoundError, True),
        (PayloadNotFoundError, False),
        (StoreUnavailableError, False),
        (ArchiveCorruptError, False),
    ],
)
def test_what_a_caller_only_has_to_be_told_is_benign(kind: type[HelixError], expected: bool) -> None:
    """Anybody can ask for sessions that are not there; what is lost or broken stays loud."""
    category = application_error(kind("why"), 1, 0.0).category
    assert (category is ApplicationErrorCategory.BENIGN) is expected
