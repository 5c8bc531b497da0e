"""What the commands that serve print of an attempt that failed."""

import logging
import sys
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError

from helix_temporal.cli._services import shorten_failure
from helix_temporal.cli.worker import load_agents
from helix_temporal.errors import InvalidConfigError, StoreUnavailableError

DETAILS = {
    "activity_type": "helix.sessions.open",
    "attempt": 3,
    "activity_id": "7",
    "workflow_id": "helix-session/a",
}


def record_of(error: Exception) -> logging.LogRecord:
    """As the SDK logs the end of an activity."""
    try:
        raise error
    except type(error):
        found = sys.exc_info()
    text = f"Completing activity as failed ({DETAILS})"
    record = logging.LogRecord("temporalio.activity", logging.WARNING, __file__, 1, text, (), found)
    record.temporal_activity = DETAILS
    return record


def printed(record: logging.LogRecord) -> str:
    assert shorten_failure(record)
    return logging.Formatter("%(message)s").format(record)


def test_an_error_of_ours_is_one_line() -> None:
    """A store that is away filled the log with thirty lines for each attempt."""
    error = ApplicationError("Redis at 10.0.0.7:6379 did not answer", type=StoreUnavailableError.__name__)
    assert printed(record_of(error)) == (
        "helix.sessions.open failed, attempt 3, of helix-session/a: "
        "StoreUnavailableError: Redis at 10.0.0.7:6379 did not answer"
    )


@pytest.mark.parametrize("error", [ValueError("of a tool"), ApplicationError("x", type="Declined")])
def test_what_others_raise_keeps_its_traceback(error: Exception) -> None:
    """It says where."""
    assert "Traceback" in printed(record_of(error))


def test_other_lines_stay_as_they_are() -> None:
    """Also those without an exception."""
    record = logging.LogRecord("temporalio.activity", logging.INFO, __file__, 1, "hello %s", ("you",), None)
    assert printed(record) == "hello you"


def test_a_module_that_fails_while_it_is_imported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that asks something at once, given for a module of agents: the error was of no module."""
    text = (
        "from helix_temporal.errors import StoreUnavailableError\nraise StoreUnavailableError('no answer')\n"
    )
    (tmp_path / "asks_at_once.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InvalidConfigError, match=r"'asks_at_once'.*StoreUnavailableError: no answer"):
        load_agents(["asks_at_once"])
