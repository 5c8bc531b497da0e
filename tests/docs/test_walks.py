"""The walks through the code lead along functions that are there."""

import ast
import inspect
import pkgutil
import re
import textwrap
import tomllib
from itertools import chain

import pytest

import helix_temporal
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


def test_the_table_of_layers_is_that_of_the_import_contract() -> None:
    """A reader who looks for a folder finds it, and what it may import: all that stands below it."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["id"] == "layers")
    table = re.findall(r"^\| (`[^|]+) \|", PAGE[: PAGE.index("## Three levels")], re.MULTILINE)
    named = [sorted(re.findall(r"`(\w+)(?:/|\.py)`", row)) for row in table]
    public = [sorted(re.findall(r"\b[a-z]\w*", layer)) for layer in layers]
    assert sorted(chain(*named)) == sorted(chain(*public))
    rank = {name: number for number, layer in enumerate(public) for name in layer}
    ranks = [rank[name] for name in chain(*named)]
    assert ranks == sorted(ranks)


@pytest.mark.parametrize(("title", "walk"), WALKS, ids=[title for title, _ in WALKS])
def test_every_function_of_a_walk_is_there(title: str, walk: str) -> None:
    """A reader who follows a walk looks each function up; code is renamed, pages stay behind."""
    named = names_in(walk)
    assert len(named) >= 20, title
    assert [name for name in named if not is_there(name)] == []


def test_every_place_of_a_rule_is_there() -> None:
    """A reader looks for a rule by the table, which names it as it is called today."""
    table = re.search(r"^## Where each rule stands\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    assert table is not None
    named = names_in(table[1])
    assert len(named) >= 20
    assert [name for name in named if not is_there(name)] == []


ARROW = re.compile(r"`([\w.]+)`(?= →\s+`([\w.]+)`)")


def names_used_in(code: object) -> set[str]:
    """The names and attributes in a function's or class's code; texts and comments are left out."""
    nodes = ast.walk(ast.parse(textwrap.dedent(inspect.getsource(code))))  # type: ignore[arg-type]
    return {each.id if isinstance(each, ast.Name) else each.attr for each in nodes if isinstance(each, _USES)}


_USES = (ast.Name, ast.Attribute)


def calls(caller: str, called: str) -> bool:
    """Whether the code of one function names the other."""
    code = inspect.unwrap(pkgutil.resolve_name(f"{helix_temporal.__name__}.{caller}"))
    return called.rpartition(".")[2] in names_used_in(code)


@pytest.mark.parametrize(("title", "walk"), WALKS, ids=[title for title, _ in WALKS])
def test_every_arrow_leads_to_a_function_that_is_called_there(title: str, walk: str) -> None:
    """A walk that leaves out the function between two others cannot be followed in the code."""
    arrows = ARROW.findall(walk)
    assert len(arrows) >= 10, title
    assert [arrow for arrow in arrows if not calls(*arrow)] == []


def test_an_arrow_that_skips_a_function_is_found_out() -> None:
    """A turn runs a step by way of two other functions."""
    assert not calls("workflows.turn.Turn.run", "workflows.turn.Turn._run_step")


def test_a_function_that_is_only_spoken_of_is_found_out() -> None:
    """A docstring may say "run" of something else."""

    def ask() -> str:
        """Run it."""
        return "run"  # and run

    assert names_used_in(ask) == {"str"}
    assert not calls("client._handle.SessionHandle.ask", "workflows.turn.Turn.run")


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
