"""The command ``helix-temporal``: one module per command."""

import sys


def main() -> None:
    """Run the command line.  Its libraries are an extra, so say how to get them."""
    try:
        import typer  # noqa: F401, PLC0415 — looked for here, so that the message is ours
    except ModuleNotFoundError:
        sys.exit("helix-temporal needs its extra 'cli': pip install 'helix-temporal[cli]'")
    from helix_temporal.cli._app import app  # noqa: PLC0415 — needs typer

    app()
