"""Colours and bold type, where a terminal shows them."""

import os
from typing import Any

import typer


def echo_styled(text: str, *, err: bool = False, **style: Any) -> None:
    """Print a line in this style; without it where none is shown.  Consoles of Windows get it translated."""
    typer.secho(text, err=err, color=choose_color(), **style)


def choose_color() -> bool | None:
    """What `typer.echo` takes as ``color``: False on terminals without styles, else as typer decides."""
    plain = os.environ.get("TERM") == "dumb" or os.environ.get("NO_COLOR")
    return False if plain else None
