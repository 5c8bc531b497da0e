"""What commands print: data on standard output, as text for people or as JSON; everything else on the other.

Tables are drawn by rich on a terminal alone; a pipe gets aligned columns.  Text of strangers is written so
that it can neither act on a terminal nor add a row.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Final, TypeVar

import typer
from pydantic import BaseModel

from helix_temporal.models.base import dump_json
from helix_temporal.models.visible import make_visible

AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON; docs/schemas/commands has the schema of each command.")
]
D = TypeVar("D", bound=BaseModel)
NOTHING: Final = "–"
_GAP: Final = "  "
_WIDEST: Final = 60
"""Characters of a cell in a table; JSON has all."""


def print_output(data: D, show: Callable[[D], None], *, as_json: bool) -> None:
    """Print the result of a command.

    Args:
        data: Its model is the command's in `helix_temporal.cli.schemas.OUTPUTS`.
        show: Prints it for people.
        as_json: Whether ``--json`` was given.
    """
    if as_json:
        print_json(data)
    else:
        show(data)


def print_json(data: BaseModel) -> None:
    """Print an object: indented on a terminal, else as one line."""
    print(data.model_dump_json(indent=2 if sys.stdout.isatty() else None))


def print_json_line(data: BaseModel) -> None:
    """Print one object of many, each on a line of its own."""
    sys.stdout.write(data.model_dump_json() + "\n")


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Print names and values below each other; a value of several lines stays in its column."""
    rows = [(name, "" if value is None else str(value)) for name, value in facts]
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        lines = make_visible(value, lines=True).split("\n")
        print(f"{name:<{width}}{_GAP}" + f"\n{'':<{width}}{_GAP}".join(lines))


def print_text(text: str, *, indent: int = 0) -> None:
    """Print text of several lines, each indented by so many blanks."""
    for line in make_visible(text, lines=True).split("\n"):
        print(f"{' ' * indent}{line}".rstrip())


def print_heading(text: str) -> None:
    """Print a line that stands out on a terminal."""
    print(typer.style(make_visible(text), bold=True) if sys.stdout.isatty() else make_visible(text))


def print_note(text: str) -> None:
    """Say something that is not data, such as progress, on standard error."""
    typer.echo(make_visible(text), err=True)


def print_warning(text: str) -> None:
    """Say on standard error that something is not as it should be."""
    typer.secho(make_visible(text), fg="yellow", err=True)


class Table:
    """Rows below a heading, printed as they come.

    Args:
        columns: Their headings; one that ends with ``>`` is aligned to the right.
    """

    def __init__(self, *columns: str) -> None:
        self._right = [name.endswith(">") for name in columns]
        self._columns = [name.removesuffix(">").upper() for name in columns]
        self._widths: list[int] = []

    def print_rows(self, rows: Iterable[Sequence[object]]) -> None:
        """Print some of the rows; the first ones say how wide columns are, and bring the heading."""
        cells = [[_cell(value) for value in row] for row in rows]
        first = not self._widths
        if first:
            if not cells:
                return
            self._widths = [
                max(len(text) for text in column) for column in zip(self._columns, *cells, strict=True)
            ]
        if sys.stdout.isatty():
            self._print_rich(cells, heading=first)
            return
        for row in [self._columns, *cells] if first else cells:
            print(self._align(row))

    def _align(self, row: Sequence[str]) -> str:
        each = zip(row, self._widths, self._right, strict=True)
        return _GAP.join(
            text.rjust(width) if right else text.ljust(width) for text, width, right in each
        ).rstrip()

    def _print_rich(self, rows: Sequence[Sequence[str]], *, heading: bool) -> None:
        # Not at the top: no pipe needs it.
        from rich.console import Console  # noqa: PLC0415
        from rich.table import Table as RichTable  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        table = RichTable(box=None, pad_edge=False, show_header=heading, header_style="bold")
        for name, width, right in zip(self._columns, self._widths, self._right, strict=True):
            table.add_column(
                Text(name), justify="right" if right else "left", min_width=min(width, 12), no_wrap=True
            )
        for row in rows:
            table.add_row(*(Text(text) for text in row))
        Console(highlight=False).print(table)


def format_time(milliseconds: int | None) -> str:
    """A time in UTC with seconds; a dash where there is none."""
    if milliseconds is None:
        return NOTHING
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)


def format_number(number: float | None) -> str:
    """A number with commas; a dash where there is none."""
    return NOTHING if number is None else f"{number:,}"


def format_duration(milliseconds: int | None) -> str:
    """Seconds, with tenths below a minute; a dash where there are none."""
    if milliseconds is None:
        return NOTHING
    seconds = milliseconds / 1000
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60)} s"


def format_cost(dollars: object) -> str:
    """US dollars; a dash where no price is known."""
    return NOTHING if dollars is None else f"${float(str(dollars)):,.4f}"


def format_json(value: object) -> str:
    """JSON on one line; text of another alphabet stays as it is."""
    return dump_json(value).decode()


def fold_text(text: str, characters: int = 120) -> str:
    """The beginning of a text, on one line."""
    line = make_visible(text[: characters + 1])
    return line if len(line) <= characters else f"{line[: characters - 1]}…"


def _cell(value: object) -> str:
    return fold_text(NOTHING if value is None or value == "" else str(value), _WIDEST)
