"""The walks through the code lead along functions that are there."""

import re

import pytest

from tests.docs._names import is_there, names_in
from tests.docs._pages import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text()
WALKS = re.findall(
    r"^### (.*?)\n(.*?)(?=^##)", PAGE[PAGE.index("## Three walks") :], re.MULTILINE | re.DOTALL
)


def test_there_are_three_walks() -> None:
    """A heading of another form would be passed over by the test below."""
    assert [title for title, _ in WALKS] == [
        "A message from a client to S3 and back",
        "A question to a person, from a sub-agent, and its answer",
        "One append, on each backend",
    ]


@pytest.mark.parametrize(("title", "walk"), WALKS, ids=[title for title, _ in WALKS])
def test_every_function_of_a_walk_is_there(title: str, walk: str) -> None:
    """A reader who follows a walk looks each function up; code is renamed, pages stay behind."""
    named = names_in(walk)
    assert len(named) >= 20, title
    assert [name for name in named if not is_there(name)] == []


def test_a_function_that_is_not_there_is_found_out() -> None:
    """The check tells a name that is gone from one that is there, at every level."""
    there = [
        "client",
        "client._handle",
        "client._handle.SessionHandle.ask",
        "stores.threads.fences.Fence.find_refusal",
    ]
    gone = ["clients", "client._handles", "client._handle.SessionHandle.asks", "stores.threads.fences.x"]
    assert [is_there(name) for name in there] == [True] * 4
    assert [is_there(name) for name in gone] == [False] * 4
