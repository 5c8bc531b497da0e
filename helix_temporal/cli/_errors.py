"""How commands end where something is wrong: one line, and status 1.  Light, as probes are asked often."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from helix_temporal.errors import HelixError


@contextmanager
def exit_on_error() -> Iterator[None]:
    """End the command with status 1 and one line where an error of ours is raised."""
    try:
        yield
    except HelixError as error:
        typer.secho(f"{type(error).__name__}: {error}", fg="red", err=True)
        raise typer.Exit(1) from None
