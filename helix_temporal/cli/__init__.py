"""The command ``helix-temporal``: one module per command."""

import io
import os
import sys
from pathlib import Path


def main() -> None:
    """Run the command line."""
    _open_missing_streams()
    # Not at the top: programs that import this package need not have typer.
    from helix_temporal.cli.commands import app  # noqa: PLC0415

    for stream in (sys.stdout, sys.stderr):
        # A terminal that lacks a character is shown its number instead of a traceback.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app()


def _open_missing_streams() -> None:
    """Nothing, for each standard stream that whoever starts the command has closed.

    The next file that is opened, a database, would get its number, and what others write to that number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 (to the end)
