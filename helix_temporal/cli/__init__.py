"""The command ``helix-temporal``: one module per command."""

import io
import os
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Run the command line."""
    _open_missing_streams()
    _ignore_lost_reader_of_errors()
    # Not at the top: programs that import this package need not have typer.
    from helix_temporal.cli._errors import exit_on_system_error  # noqa: PLC0415
    from helix_temporal.cli.commands import app  # noqa: PLC0415

    for stream in (sys.stdout, sys.stderr):
        # A terminal that lacks a character is shown its number instead of a traceback.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with exit_on_system_error():
        app()


class _ErrorFile(io.FileIO):
    """Standard error whose reader may go: what a command does, and its status, do not depend on it."""

    def write(self, data: Any) -> int:
        """Write; what nobody reads any more is written nowhere."""
        try:
            return super().write(data)
        except BrokenPipeError:
            return len(data)


def _ignore_lost_reader_of_errors() -> None:
    stream = sys.stderr
    # One that was opened in place of a closed one would be closed with the object that it has now.
    if stream is sys.__stderr__ and isinstance(stream, io.TextIOWrapper) and not stream.isatty():
        file = io.BufferedWriter(_ErrorFile(stream.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(file, encoding=stream.encoding, line_buffering=True)


def _open_missing_streams() -> None:
    """Nothing, for each standard stream that whoever starts the command has closed.

    The next file that is opened, a database, would get its number, and what others write to that number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 (to the end)
