"""The command ``helix-temporal``: one module per command."""

import io
import sys


def main() -> None:
    """Run the command line."""
    # Not at the top: programs that import this package need not have typer.
    from helix_temporal.cli.commands import app  # noqa: PLC0415

    for stream in (sys.stdout, sys.stderr):
        # A terminal that lacks a character is shown its number instead of a traceback.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app()
