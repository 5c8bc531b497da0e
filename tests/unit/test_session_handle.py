"""The handle has the verbs of a session; what the client repeats of it is the same."""

import inspect
import re
import typing
from collections.abc import Callable
from typing import Any

import pytest

from helix_temporal import errors
from helix_temporal.client import (
    AskOptions,
    Page,
    SendOptions,
    SessionClient,
    SessionHandle,
    StreamOptions,
)

METHODS = [
    method
    for holder in (SessionClient, SessionHandle)
    for name, method in vars(holder).items()
    if not name.startswith("_") and callable(method)
]
LISTS = [
    method for method in METHODS if not {"cursor", "query"}.isdisjoint(inspect.signature(method).parameters)
]


@pytest.mark.parametrize(
    ("verb", "options"),
    [
        (SessionHandle.ask, AskOptions),
        (SessionHandle.send, SendOptions),
        (SessionHandle.stream, StreamOptions),
    ],
)
def test_a_shortcut_of_the_client_takes_what_the_handle_takes(
    verb: Callable[..., Any], options: type
) -> None:
    """A parameter that only one of them knew would be refused by type checkers, or at run time."""
    hints = typing.get_type_hints(verb)
    keywords = [
        each for each in inspect.signature(verb).parameters.values() if each.kind is each.KEYWORD_ONLY
    ]
    assert typing.get_type_hints(options) == {each.name: hints[each.name] for each in keywords}


@pytest.mark.parametrize("method", LISTS, ids=lambda each: str(each.__name__))
def test_every_list_by_pages_is_a_page(method: Callable[..., Any]) -> None:
    """``items`` and ``next_cursor`` everywhere: who reads one list by pages can read them all."""
    assert issubclass(typing.get_type_hints(method)["return"], Page)


def test_the_lists_are_known() -> None:
    """Otherwise the test before would hold for no list at all."""
    names = {each.__name__ for each in LISTS}
    assert names == {
        "list_sessions",
        "query_usage",
        "list_messages",
        "list_turns",
        "list_checkpoints",
        "list_children",
    }


@pytest.mark.parametrize("method", METHODS, ids=lambda each: str(each.__qualname__))
def test_what_a_method_raises_is_an_error_of_the_pack_or_a_time_out(method: Callable[..., Any]) -> None:
    """Each has an entry in the reference and in troubleshooting, and says when it is raised."""
    _, _, raised = (inspect.getdoc(method) or "").partition("Raises:\n")
    entries = re.findall(r"^ {4}(\S[^:]*): (?!See)", raised, re.MULTILINE)
    assert len(entries) == len(re.findall(r"^ {4}\S", raised, re.MULTILINE))
    names = {name for entry in entries for name in entry.split(", ")} - {"TimeoutError"}
    assert {name for name in names if errors.error_class(name) is None} == set()
