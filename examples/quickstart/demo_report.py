"""How the demo prints: lines that fit a terminal, a table, and checks that decide the exit status."""

import os
import sys
import unicodedata
from collections.abc import Sequence

WIDTH = 100
_COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ


def paint(text: str, code: str) -> str:
    """The text in a colour, where there are colours."""
    return f"\033[{code}m{text}\033[0m" if _COLOUR else text


def say(text: str = "") -> None:
    """Print at once, also into a pipe."""
    print(text, flush=True)


def heading(text: str) -> None:
    """Begin a part."""
    say("\n" + paint(text, "1"))


def cells(text: str) -> int:
    """Columns that a text takes in a terminal."""
    wide = sum(1 for sign in text if unicodedata.east_asian_width(sign) in {"W", "F"})
    return len(text) + wide - sum(1 for sign in text if unicodedata.combining(sign))


def fit(text: str, width: int) -> str:
    """The text in one line of exactly so many columns."""
    line = " ".join(text.split())
    if cells(line) > width:
        while cells(line) > width - 1:
            line = line[:-1]
        line += "…"
    return line + " " * (width - cells(line))


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Numbers under their headings of one or two lines, right-aligned; the last row is a sum."""
    texts = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    heads = [[*column.split("\n"), ""][:2] for column in columns]
    widths = [
        max(len(text) for text in (*head, *column)) for head, *column in zip(heads, *texts, strict=True)
    ]
    rule = ["─" * width for width in widths]
    for line in (*zip(*heads, strict=True), rule, *texts[:-1], rule, texts[-1]):
        say("  " + "  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)))


class Checks:
    """Numbers and what they should be."""

    def __init__(self) -> None:
        self.wrong: list[str] = []

    def equal(self, what: str, found: object, expected: object, note: str = "") -> None:
        """Print a number with a mark that says whether it is right."""
        self._print(what, found, found == expected, note if found == expected else f"expected {expected}")

    def at_most(self, what: str, found: int, limit: int) -> None:
        """Print a number that must not be larger."""
        self._print(what, found, found <= limit, f"at most {limit:,}")

    def _print(self, what: str, found: object, right: bool, note: str) -> None:
        mark = paint("✓", "32") if right else paint("✗", "31;1")
        shown = {True: "yes", False: "no"}[found] if isinstance(found, bool) else f"{found:,}"
        say(f"  {mark} {what:<54}{shown:>8}   {paint(note, '2')}".rstrip())
        if not right:
            self.wrong.append(what)
