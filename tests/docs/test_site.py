"""The site's navigation has every page, and its reference every public name."""

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml
from typer.main import get_command

from helix_temporal.cli.commands import app
from tests.architecture.test_layout import DOORS, OF_FRAMEWORKS
from tests.docs._pages import ROOT

DOCS: Final = ROOT / "docs"
CONFIG: Final = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
PUBLIC: Final = [door for door in DOORS if getattr(importlib.import_module(door), "__all__", ())]


def nav_pages(nav: list[Any]) -> Iterator[str]:
    """The pages of the navigation, in its order."""
    for entry in nav:
        for below in entry.values():
            if isinstance(below, str):
                yield below
            else:
                yield from nav_pages(below)


def test_the_navigation_has_every_page_once() -> None:
    """A page that is not in it is found by nobody; an entry without a page breaks the site."""
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    listed = list(nav_pages(CONFIG["nav"]))
    assert sorted(listed) == sorted(pages)


def test_the_site_opens_without_a_server() -> None:
    """Pages are files that link to files, and nothing comes from another host."""
    assert CONFIG["use_directory_urls"] is False
    assert CONFIG["theme"]["font"] is False
    assert "offline" in CONFIG["plugins"]


def documented_names() -> list[str]:
    """What the pages of the reference name, as ``package.module.Name``."""
    lines = [line for page in sorted(DOCS.glob("reference/*.md")) for line in page.read_text().splitlines()]
    return [line.removeprefix("::: ") for line in lines if line.startswith("::: ")]


def test_no_name_is_in_the_reference_twice() -> None:
    """Links by name would lead to one of them by chance."""
    names = documented_names()
    assert len(names) == len(set(names))


@pytest.mark.parametrize("door", PUBLIC)
def test_every_public_name_is_in_the_reference(door: str) -> None:
    """Under this door or another one through which the same thing is imported."""
    opened = importlib.import_module(door)
    documented = {
        (name.rpartition(".")[2], id(pkgutil.resolve_name(name)))
        for name in documented_names()
        if not name.startswith(OF_FRAMEWORKS)
    }
    errors = importlib.import_module("helix_temporal.errors")
    missing = [
        name
        for name in opened.__all__
        if (name, id(getattr(opened, name))) not in documented and not hasattr(errors, name)
    ]
    assert missing == []
    assert "helix_temporal.errors" in documented_names()


def test_every_command_is_on_its_page() -> None:
    """Whoever looks for a command looks there."""
    page = (DOCS / "reference" / "command-line.md").read_text()
    commands: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    names = [
        f"{name} {below}" if below else name
        for name, command in commands.items()
        for below in getattr(command, "commands", [""])
    ]
    assert len(names) >= 9
    assert [name for name in names if f"| `helix-temporal {name}` |" not in page] == []
