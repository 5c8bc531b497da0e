"""The page for whoever is on call quotes lines that the code writes."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "on-call.md").read_text()
LINES = re.findall(
    r"^\| `([^|]*?)` \| [^|]+ \| [^|]+ \|$", PAGE.partition("## Lines of the log")[2], re.MULTILINE
)
JOINED = re.compile(r'"\s*\n\s*f?"')
"""Where a text goes on in the next line of the code."""


@pytest.fixture(scope="module")
def code() -> str:
    """All of the package, with texts in one piece and without what is put into them."""
    whole = "\n".join(path.read_text() for path in sorted((ROOT / "helix_temporal").rglob("*.py")))
    return re.sub(r"\{[^{}\n]*\}|%[a-z0-9.]+", "…", JOINED.sub("", whole))


def test_the_page_has_lines() -> None:
    """The expression finds them."""
    assert len(LINES) >= 12


@pytest.mark.parametrize("line", LINES)
def test_the_code_writes_the_line(code: str, line: str) -> None:
    """Each part between what differs, the longest words of it as they stand."""
    parts = [part.strip(" :,.") for part in line.split("…")]
    assert max(map(len, parts)) >= 8, "nothing of it could be found"
    missing = [part for part in parts if part not in code]
    assert not missing
