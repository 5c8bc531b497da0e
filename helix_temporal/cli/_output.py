"""What commands print: data on standard output, as text for people or as JSON; everything else on the other.

Tables are aligned columns; on a terminal headings stand out, and lines are cut where it ends.  Text of
strangers is written so that it can neither act on a terminal nor add a row.
"""

import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Final, TypeVar

import typer
from pydantic import BaseModel

from helix_temporal.cli._styles import echo_styled
from helix_temporal.models.amounts import NOTHING
from helix_temporal.models.base import dump_json
from helix_temporal.models.visible import make_visible

AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON for programs; its schema is in the documentation.")
]
D = TypeVar("D", bound=BaseModel)
_GAP: Final = "  "
_WIDEST: Final = 60
"""Characters of a cell in a table; JSON has all."""
_NARROWEST: Final = 10
"""Columns of a terminal that the last cell may always take; lines that are too long wrap."""


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
    """Print names and values below each other, a line each."""
    rows = [(name, "" if value is None else make_visible(str(value))) for name, value in facts]
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        print(f"{name:<{width}}{_GAP}{value}".rstrip())


def print_text(text: str, *, indent: int = 0) -> None:
    """Print text of several lines, each indented by so many blanks."""
    for line in make_visible(text, lines=True).split("\n"):
        print(f"{' ' * indent}{line}".rstrip())


def print_heading(text: str) -> None:
    """Print a line that stands out on a terminal."""
    echo_styled(make_visible(text), bold=True)


def print_note(text: str) -> None:
    """Say something that is not data, such as progress, on standard error."""
    typer.echo(make_visible(text), err=True)


def print_warning(text: str) -> None:
    """Say on standard error that something is not as it should be."""
    echo_styled(make_visible(text), fg="yellow", err=True)


class Progress:
    """Counts on standard error while somebody waits there, and the rows go elsewhere.

    Args:
        what: Is counted.
        every: So many are one line.

    Attributes:
        count: How many there have been.
    """

    def __init__(self, what: str, every: int = 10_000) -> None:
        self._what, self._every, self.count = what, every, 0
        self._is_seen = sys.stderr.isatty() and not sys.stdout.isatty()

    def add(self, number: int = 1) -> None:
        """Count some more."""
        before, self.count = self.count, self.count + number
        if self._is_seen and self.count // self._every > before // self._every:
            print_note(f"  {self.count:,} {self._what}")


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
        if not cells:
            return
        if not self._widths:
            self._widths = [
                max(_width_of(text) for text in column) for column in zip(self._columns, *cells, strict=True)
            ]
            print_heading(self._align(self._columns))
        for row in cells:
            print(self._align(row))

    def _align(self, row: Sequence[str]) -> str:
        cells = zip(row, self._widths, self._right, strict=True)
        *most, last = (_pad(text, width, right=right) for text, width, right in cells)
        line = _GAP.join([*most, last]).rstrip()
        if self._right[-1] or not sys.stdout.isatty():
            return line
        # Text in the last column gives way on a terminal, not an id or a number: an id can be copied.
        last = last.rstrip()
        room = shutil.get_terminal_size().columns - sum(len(_GAP) + _width_of(text) for text in most)
        width = max(room, _NARROWEST)
        return line if _width_of(last) <= width else _GAP.join([*most, _cut(last, width)])


def format_time(milliseconds: int | None) -> str:
    """A time in UTC with seconds; a dash where there is none, or 0: nobody knows it."""
    if not milliseconds:
        return NOTHING
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)


def format_number(number: float | None) -> str:
    """A number with commas; a dash where there is none."""
    return NOTHING if number is None else f"{number:,}"


def count_of(count: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun: ``1 call``, ``3 calls``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def format_json(value: object) -> str:
    """JSON on one line; text of another alphabet stays as it is."""
    return dump_json(value).decode()


def fold_text(text: str, characters: int = 120) -> str:
    """The beginning of a text, on one line."""
    line = make_visible(text[: characters + 1])
    return line if len(line) <= characters else f"{line[: characters - 1]}…"


def _width_of(text: str) -> int:
    """Columns of a terminal that a text takes: those of other alphabets may take two a character."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(each) in {"W", "F"} for each in text)
    narrow = sum(unicodedata.combining(each) != 0 for each in text)
    return len(text) + wide - narrow


def _pad(text: str, width: int, *, right: bool) -> str:
    blanks = " " * (width - _width_of(text))
    return blanks + text if right else text + blanks


def _cut(text: str, width: int) -> str:
    while _width_of(text) > width - 1:
        text = text[:-1]
    return f"{text}…"


def _cell(value: object) -> str:
    return fold_text(NOTHING if value is None or value == "" else str(value), _WIDEST)
