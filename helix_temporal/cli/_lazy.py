"""Commands that are imported when they are run, or when their own help is asked for.

Their modules bring drivers and Temporal's SDK, which take more than a second; a list of commands needs
neither.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from helix_temporal.cli._errors import errors_as_json, exit_on_error


class Row(NamedTuple):
    """A command in the table.

    Attributes:
        where: ``module:function``, below `helix_temporal.cli`.
        help: A line for the list of commands; the function's docstring is its own help.
    """

    where: str
    help: str


class StatusCommand(TyperCommand):
    """A command that ends with a status of the table, whatever it raises."""

    def invoke(self, ctx: Any) -> Any:
        """Run the function."""
        token = errors_as_json.set(bool(ctx.params.get("as_json")))
        try:
            with exit_on_error():
                found = super().invoke(ctx)
                # Here, not when the interpreter ends: a reader that has gone is no failure.
                sys.stdout.flush()
                return found
        finally:
            errors_as_json.reset(token)


class LazyCommand(TyperCommand):
    """Stands for a command in a list; is imported when the command is called."""

    def __init__(self, name: str, row: Row) -> None:
        super().__init__(name, help=row.help, rich_markup_mode=None)
        self._row = row

    def make_context(self, info_name: str | None, args: Any, parent: Any = None, **extra: Any) -> Any:
        """Of the command itself, which the context names as what is to be run."""
        return self.load().make_context(info_name, args, parent, **extra)

    def load(self) -> Any:
        """Import the command."""
        module, _, function = self._row.where.partition(":")
        imported = import_module(f"helix_temporal.cli.{module}")
        return make_command(self.name or function, getattr(imported, function))


class LightGroup(TyperGroup):
    """A group of commands that are not imported to be listed."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, row in self.get_rows().items():
            self.commands.setdefault(name, LazyCommand(name, row))

    def get_rows(self) -> Mapping[str, Row]:
        """The commands by their names."""
        return {}

    def list_commands(self, ctx: Any) -> list[str]:
        """By name: the table is sorted by what belongs together."""
        return sorted(super().list_commands(ctx))


def make_group(rows: Mapping[str, Row]) -> type[LightGroup]:
    """A group of these commands, as Typer takes it for ``cls``."""

    class _Group(LightGroup):
        def get_rows(self) -> Mapping[str, Row]:
            return rows

    return _Group


def make_command(name: str, function: Callable[..., Any]) -> Any:
    """The command that a function with Typer's annotations is."""
    app = typer.Typer(**PLAIN)
    app.command(name, cls=StatusCommand)(function)
    return get_command(app)


def _uses_rich(arguments: Sequence[str]) -> bool:
    """Help with colours and frames is for people alone."""
    return sys.stdout.isatty() and ("--help" in arguments or not arguments)


PLAIN: Any = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": "rich" if _uses_rich(sys.argv[1:]) else None,
}
