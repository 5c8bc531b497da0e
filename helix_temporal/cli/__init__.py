"""The command ``helix-temporal``: one module per command."""


def main() -> None:
    """Run the command line."""
    # Not at the top: commands bring drivers, which programs that import this package may not need.
    from helix_temporal.cli.commands import app  # noqa: PLC0415

    app()
