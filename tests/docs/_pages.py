"""The project's pages, and what is in them."""

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")], key=str
)
_FENCE: Final = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TITLE: Final = re.compile(r'^ title="([^"]+)"$')
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def name(page: Path) -> str:
    """The page as test ids show it."""
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of one language that have no title: those of a title belong together."""
    found = _FENCE.findall(page.read_text())
    return [text for marked, about, text in found if marked == language and not about]


def titled(page: Path, language: str) -> list[tuple[str, str]]:
    """The fenced blocks of one language that have a title, such as a file's name, each with its title."""
    found = _FENCE.findall(page.read_text())
    titles = [(_TITLE.match(about), text) for marked, about, text in found if marked == language]
    return [(title[1], text) for title, text in titles if title is not None]


def links(page: Path) -> list[str]:
    """Targets of all links outside of code."""
    return _LINK.findall(_FENCE.sub("", page.read_text()))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", _FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
