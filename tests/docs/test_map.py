"""The map of the package names each of its parts, in the order of its layers."""

import re
import tomllib
from typing import Final

from tests.architecture._project import PACKAGE, ROOT

MAP: Final = (ROOT / "docs" / "architecture.md").read_text().partition("| where | what |")[2]
ROWS: Final = [line.split("|")[1] for line in MAP.partition("\n\n")[0].splitlines() if line.startswith("| `")]
CONTRACTS: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
LAYERS: Final = [
    re.findall(r"\w+", layer) for each in CONTRACTS if each["type"] == "layers" for layer in each["layers"]
]


def parts(row: str) -> list[str]:
    """The folders and modules that a row of the map names, as ``views/`` and ``worker.py``."""
    return re.findall(r"`([^`]+)`", row)


def find_layer(part: str) -> int:
    """Which layer of the import contract a folder or module is, counted from the top."""
    name = part.removesuffix("/").removesuffix(".py")
    return next(at for at, layer in enumerate(LAYERS) if name in layer)


def test_the_map_names_every_part_once() -> None:
    """Who is new looks there for where something goes; what it lacks is built a second time elsewhere."""
    folders = [f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")]
    modules = [path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("_")]
    assert sorted(part for row in ROWS for part in parts(row)) == sorted(folders + modules)


def test_the_map_has_the_order_of_the_layers() -> None:
    """A row imports only rows below it: the page says so, and import-linter checks another list."""
    found = [find_layer(part) for row in ROWS for part in parts(row)]
    assert found == sorted(found)
