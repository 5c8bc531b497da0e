"""The command ``helix-temporal``: one module per command."""

import sys


def main() -> None:
    """Run the command line."""
    # Not at the top: commands bring drivers, which programs that import this package may not need.
    if sys.argv[1:2] == ["health"]:
        # Asked by an orchestrator each few seconds: without what all other commands bring.
        from helix_temporal.cli.health import app  # noqa: PLC0415
    else:
        from helix_temporal.cli.commands import app  # noqa: PLC0415

    app()
