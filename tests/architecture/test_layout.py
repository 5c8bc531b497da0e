"""How the source is laid out: short functions, honest doors, an environment that is read at the edge only."""

import ast
import importlib
from pathlib import Path
from typing import Final

import pytest

from tests.architecture._project import MODULES, PACKAGE, ROOT, relative

MOST_FUNCTION_LINES: Final = 40
READS_THE_ENVIRONMENT: Final = ("helix_temporal/cli/", "helix_temporal/testing/environment.py")
DOORS: Final = sorted(
    ".".join(path.parent.relative_to(ROOT).parts) for path in MODULES if path.name == "__init__.py"
)


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function below its signature and docstring."""
    statements = function.body[1:] if ast.get_docstring(function) else function.body
    return (function.end_lineno or 0) - statements[0].lineno + 1 if statements else 0


@pytest.mark.parametrize("module", MODULES, ids=relative)
def test_a_function_is_short_enough_to_read(module: Path) -> None:
    """What it does is seen at once; signature and docstring don't count."""
    long = {
        node.name: length
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := body_lines(node)) > MOST_FUNCTION_LINES
    }
    assert not long


@pytest.mark.parametrize("module", MODULES, ids=relative)
def test_the_environment_is_read_at_the_edge_only(module: Path) -> None:
    """`Settings.from_env` takes a mapping; code that looks for itself can't be tested or embedded."""
    reads = {
        f"line {node.lineno}"
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"}
    }
    assert not reads or relative(module).startswith(READS_THE_ENVIRONMENT)


@pytest.mark.parametrize("door", DOORS)
def test_a_door_has_what_it_lists(door: str) -> None:
    """``from helix_temporal.x import *`` and documentation tools follow the list."""
    opened = importlib.import_module(door)
    listed = getattr(opened, "__all__", [])
    assert [name for name in listed if not hasattr(opened, name)] == []
    assert len(set(listed)) == len(listed)


def test_no_test_or_tool_lies_in_the_package() -> None:
    """What is in the folder is in the wheel."""
    assert not [relative(path) for path in PACKAGE.rglob("test_*.py")]
    assert not list(PACKAGE.rglob("conftest.py"))
