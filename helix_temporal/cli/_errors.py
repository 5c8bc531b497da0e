"""How commands end where something is wrong: a line, or with ``--json`` an object, and a status of the table.

Light, as probes are asked often.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import typer

from helix_temporal.cli._styles import echo_styled
from helix_temporal.cli.statuses import ExitStatus, find_status
from helix_temporal.errors import HelixError
from helix_temporal.models.visible import make_visible

errors_as_json: Final[ContextVar[bool]] = ContextVar("errors_as_json", default=False)
"""Whether the command that runs was called with ``--json``."""


@contextmanager
def exit_on_error() -> Iterator[None]:
    """End the command with a status of the table and one line where it fails in a way that can be foreseen.

    That is an error of ours, one of the system or of a connection, or Ctrl-C; any other is a bug, and has a
    traceback.
    """
    try:
        yield
    except BrokenPipeError:
        close_pipe()
        raise typer.Exit(ExitStatus.DONE) from None
    except KeyboardInterrupt:
        raise typer.Exit(ExitStatus.INTERRUPTED) from None
    except BaseExceptionGroup as group:
        if not is_foreseen(group):
            raise
        print_error(_first_of(group))
        raise typer.Exit(find_status(group)) from None
    except Exception as error:
        if not is_foreseen(error):
            raise
        print_error(error)
        raise typer.Exit(find_status(error)) from None


@contextmanager
def exit_on_system_error() -> Iterator[None]:
    """As `exit_on_error` for what is printed before a command begins, such as its help, on a full disk."""
    try:
        yield
    except OSError as error:
        print_error(error)
        close_pipe()
        sys.exit(find_status(error))


def is_foreseen(error: BaseException) -> bool:
    """Whether the error's message says all: it is ours, the system's, or an answer of a server."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_foreseen(each) for each in error.exceptions)
    return isinstance(error, HelixError | OSError) or find_status(error) is not ExitStatus.FAILED


def print_error(error: BaseException) -> None:
    """Say on standard error what went wrong: a line, or with ``--json`` an object.

    Its ``error`` has ``type``, ``message`` and ``exit_status``.
    """
    kind, message = type(error).__name__, str(error)
    if errors_as_json.get():
        status = int(find_status(error))
        print(
            json.dumps({"error": {"type": kind, "message": message, "exit_status": status}}), file=sys.stderr
        )
    else:
        echo_styled(f"{kind}: {make_visible(message, lines=True)}", fg="red", err=True)


def close_pipe() -> None:
    """Write nothing more to a reader that has gone, or a full disk: the interpreter flushes when it ends."""
    if sys.__stdout__ is not None and sys.stdout is sys.__stdout__:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _first_of(error: BaseException) -> BaseException:
    return _first_of(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
