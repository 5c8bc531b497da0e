"""A simulated process is dropped where it stands: that it awaits something on its way out fails no test."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

# Which of its coroutines is named is the collector's choice.  One that is never awaited is still an error.
_DROPPED = pytest.mark.filterwarnings(
    r"ignore:Exception ignored in[\s\S]*(coroutine ignored GeneratorExit|generator didn't stop after athrow)"
    ":pytest.PytestUnraisableExceptionWarning"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this directory."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(_DROPPED)


@pytest.fixture(autouse=True)
def drop_processes() -> Iterator[None]:
    """The processes of a test are gone before another test begins, which would be blamed for them."""
    yield
    gc.collect()
