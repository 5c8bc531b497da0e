"""One table says by which status a command ends."""

import inspect
import json
import subprocess
import sys
from typing import Final

import pytest
import typer
from temporalio.service import RPCError, RPCStatusCode
from typer.testing import CliRunner, Result

from helix_temporal import errors
from helix_temporal.cli._lazy import PLAIN, StatusCommand
from helix_temporal.cli._output import AsJson
from helix_temporal.cli.statuses import ExitStatus, find_status, sum_statuses
from helix_temporal.errors import (
    ArchiveAccessError,
    ArchiveCorruptError,
    FencedError,
    HelixError,
    InvalidConfigError,
    LockHeldError,
    MigrationError,
    NotArchivedError,
    NotServedError,
    SessionNotFoundError,
    StoreUnavailableError,
)

OURS = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, HelixError)]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (MigrationError("x"), 1),
        (NotServedError("x"), 1),
        (InvalidConfigError("x"), 2),
        (SessionNotFoundError("x"), 4),
        (FencedError("x"), 5),
        (LockHeldError("x"), 5),
        (ArchiveCorruptError("x"), 6),
        (StoreUnavailableError("x"), 7),
        (NotArchivedError("x"), 7),
        (ConnectionRefusedError("x"), 7),
        (TimeoutError("x"), 7),
        (RPCError("x", RPCStatusCode.UNAVAILABLE, b""), 7),
        (RPCError("x", RPCStatusCode.NOT_FOUND, b""), 4),
        (RPCError("x", RPCStatusCode.PERMISSION_DENIED, b""), 8),
        (ArchiveAccessError("x"), 8),
        (KeyboardInterrupt(), 130),
        (PermissionError("x"), 1),
        (KeyError("x"), 1),
        (ExceptionGroup("two", [StoreUnavailableError("x"), KeyError("y")]), 7),
    ],
)
def test_an_error_ends_a_command_by_its_status(error: BaseException, status: int) -> None:
    """A script tries again where a store is away, and does not where an id is wrong."""
    assert find_status(error) == status


@pytest.mark.parametrize("kind", OURS)
def test_each_error_of_ours_has_a_status_of_a_failure(kind: type[HelixError]) -> None:
    """None of them may look like success, and none may bring a status that nobody documents."""
    assert find_status(kind("x")) in set(ExitStatus) - {ExitStatus.DONE, ExitStatus.PARTLY}


@pytest.mark.parametrize(
    ("done", "failed", "status"),
    [
        (3, [], 0),
        (0, [], 0),
        (0, [ExitStatus.NOT_FOUND], 4),
        (1, [ExitStatus.NOT_FOUND], 3),
        (0, [ExitStatus.NOT_FOUND, ExitStatus.DAMAGED], 3),
    ],
)
def test_work_on_many_is_done_or_partly(done: int, failed: list[ExitStatus], status: int) -> None:
    """One thing that was named fails by its own status; of many, some were done."""
    assert sum_statuses(done, failed) == status


def run(error: BaseException, *arguments: str) -> Result:
    """Run a command that raises it, after it has printed something."""

    def fails(*, as_json: AsJson = False) -> None:
        typer.echo("so far")
        raise error

    app = typer.Typer(**PLAIN)
    app.command(cls=StatusCommand)(fails)
    return CliRunner().invoke(app, list(arguments))


def test_a_failure_is_one_line_on_standard_error() -> None:
    """Data that are out stay data: a pipe does not get the error among them."""
    found = run(StoreUnavailableError("redis: no answer\x1b[2J"))
    assert (found.exit_code, found.stdout) == (7, "so far\n")
    assert found.stderr == "StoreUnavailableError: redis: no answer\\x1b[2J\n"


def test_with_json_a_failure_is_an_object() -> None:
    """A program reads the kind of failure instead of a sentence."""
    found = run(SessionNotFoundError("session 'x': there is none"), "--json")
    assert found.exit_code == 4
    assert json.loads(found.stderr) == {
        "error": {
            "type": "SessionNotFoundError",
            "message": "session 'x': there is none",
            "exit_status": 4,
        }
    }


def test_what_one_command_prints_says_nothing_of_the_next() -> None:
    """`--json` of one call ends with it, in a program that makes several."""
    run(SessionNotFoundError("x"), "--json")
    assert run(SessionNotFoundError("x")).stderr == "SessionNotFoundError: x\n"


def test_ctrl_c_ends_without_a_word() -> None:
    """Who pressed it knows."""
    found = run(KeyboardInterrupt())
    assert (found.exit_code, found.stderr) == (130, "")


def test_a_bug_is_no_line_but_a_traceback() -> None:
    """It is reported with the place where it happened."""
    found = run(KeyError("a bug"))
    assert found.exit_code == 1
    assert isinstance(found.exception, KeyError)


def test_a_failure_of_many_at_once_is_told_by_the_first() -> None:
    """Two stores are asked at once, and both are away."""
    found = run(ExceptionGroup("two", [StoreUnavailableError("one"), StoreUnavailableError("two")]))
    assert (found.exit_code, found.stderr) == (7, "StoreUnavailableError: one\n")


LONG: Final = """
import typer
from helix_temporal.cli._lazy import PLAIN, StatusCommand
def command() -> None:
    for number in range(100_000):
        print(number)
app = typer.Typer(**PLAIN)
app.command(cls=StatusCommand)(command)
app()
"""


def test_a_reader_that_has_had_enough_is_no_failure() -> None:
    """`| head` ends the command quietly, with status 0, however much is left."""
    with subprocess.Popen(
        [sys.executable, "-c", LONG], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "0\n"
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0
