"""How the source is laid out: honest doors, an environment that is read at the edge only."""

import ast
import importlib
from typing import Final

from tests.architecture._project import MODULES, PACKAGE, ROOT, relative

READS_THE_ENVIRONMENT: Final = ("helix_temporal/cli/", "helix_temporal/testing/environment.py")
OF_FRAMEWORKS: Final = "helix_temporal.frameworks."
"""What is below it needs packages that are in environments of their own: tests/frameworks opens it."""
DOORS: Final = sorted(
    door
    for door in (
        ".".join(path.parent.relative_to(ROOT).parts) for path in MODULES if path.name == "__init__.py"
    )
    if not door.startswith(OF_FRAMEWORKS)
)


def test_the_environment_is_read_at_the_edge_only() -> None:
    """`Settings.from_env` takes a mapping; code that looks for itself can't be tested or embedded."""
    reads = [
        f"{relative(module)}:{node.lineno}"
        for module in MODULES
        if not relative(module).startswith(READS_THE_ENVIRONMENT)
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"}
    ]
    assert reads == []


def test_a_door_has_what_it_lists() -> None:
    """``from helix_temporal.x import *`` and documentation tools follow the list."""
    missing, twice = [], []
    for door in DOORS:
        opened = importlib.import_module(door)
        listed = list(getattr(opened, "__all__", []))
        missing += [f"{door}.{name}" for name in listed if not hasattr(opened, name)]
        twice += [f"{door}.{name}" for name in set(listed) if listed.count(name) > 1]
    assert (missing, twice) == ([], [])


def test_no_test_or_tool_lies_in_the_package() -> None:
    """What is in the folder is in the wheel."""
    assert not [relative(path) for path in PACKAGE.rglob("test_*.py")]
    assert not list(PACKAGE.rglob("conftest.py"))
