"""The page of errors has each error, and says of each what was found, why, and what to do."""

import inspect
import re
from typing import Final

from helix_temporal import errors
from tests.docs._pages import ROOT

PAGE: Final = (ROOT / "docs" / "troubleshooting.md").read_text()
ENTRIES: Final = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
CLASSES: Final = {
    name: found
    for name, found in inspect.getmembers(errors, inspect.isclass)
    if issubclass(found, errors.HelixError)
}


def test_every_error_has_an_entry_and_no_other() -> None:
    """Whoever sees a name in Temporal's UI looks it up."""
    assert set(ENTRIES) == set(CLASSES)


def test_each_entry_says_what_was_found_why_and_what_to_do() -> None:
    """An entry that only repeats the name helps nobody."""
    parts = {name: re.findall(r"^\* \*\*(\w+):\*\* \S", text, re.MULTILINE) for name, text in ENTRIES.items()}
    assert [name for name, found in parts.items() if found != ["Found", "Why", "Do"]] == []


def test_the_page_says_of_each_error_whether_it_is_retried() -> None:
    """Who reads "Retried" waits; who does not, acts."""
    retried = {name for name, text in ENTRIES.items() if text.lstrip().startswith("Retried.")}
    assert retried == {name for name, found in CLASSES.items() if found.retryable}
