"""What users install: the wheel, and the versions it is tested with."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from email.message import Message
from email.parser import Parser
from importlib import metadata
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture._building import build_package
from tests.architecture._project import PACKAGE, ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the tree as it is."""
    return next(build_package(tmp_path_factory.mktemp("wheel"), "--wheel").glob("*.whl"))


@pytest.fixture(scope="module")
def files(wheel: Path) -> set[str]:
    """The names in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def about(wheel: Path, files: set[str]) -> Message:
    """The wheel's metadata."""
    name = next(name for name in files if name.endswith(".dist-info/METADATA"))
    with zipfile.ZipFile(wheel) as archive:
        return Parser().parsestr(archive.read(name).decode())


ONLY: str = """
import sys
from importlib import metadata

allowed = set(sys.argv[1].split(","))
tops = {top for top, dists in metadata.packages_distributions().items() if not allowed & set(dists)}

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in tops:
            raise ModuleNotFoundError(f"No module named {name!r}: a plain pip install brings none", name=name)

sys.meta_path.insert(0, Refuse())
sys.argv[:] = ["helix-temporal", *sys.argv[2:]]
from helix_temporal.cli import main
main()
"""
"""The command line with the distributions that are named, and no others."""


def closure(required: Iterable[Requirement]) -> set[str]:
    """What these name and all that it requires, with the extras asked for, as their metadata name them."""
    found: dict[tuple[str, str], str] = {}
    left = [place for each in required for place in places(each)]
    while left:
        name, extra = left.pop()
        if (name, extra) in found:
            continue
        distribution = metadata.distribution(name)
        found[name, extra] = distribution.metadata["Name"]
        for text in distribution.requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                left += places(requirement)
    return set(found.values())


def places(requirement: Requirement) -> list[tuple[str, str]]:
    """A distribution's name, alone and with each extra that is asked for."""
    return [(canonicalize_name(requirement.name), extra) for extra in ("", *requirement.extras)]


@pytest.mark.parametrize("command", ["", "worker", "thread show", "inspect"])
def test_the_command_line_needs_no_extra(command: str, about: Message) -> None:
    """After a plain ``pip install`` each command is there, and says what it does."""
    required = [Requirement(text) for text in about.get_all("Requires-Dist", [])]
    core = [requirement for requirement in required if requirement.marker is None]
    allowed = ",".join(sorted(closure(core)))
    ran = subprocess.run(
        [sys.executable, "-c", ONLY, allowed, *command.split(), "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert f"helix-temporal {command}".strip() in ran.stdout


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def test_the_wheel_holds_every_file_of_the_package(files: set[str]) -> None:
    """A script or statement that is left out fails in production only."""
    wanted = {
        path.relative_to(ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert wanted <= files
    assert "helix_temporal/py.typed" in files
    assert any(name.endswith(".lua") for name in files)


@pytest.fixture(scope="module")
def unpacked(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as it is released, which is built from the sdist, not from the tree."""
    target = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(next(built.glob("*.whl"))) as archive:
        archive.extractall(target)
    return target


def test_the_released_wheel_holds_what_git_has(unpacked: Path) -> None:
    """Others have released pages whose files were lost between the tree, the sdist and the wheel."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "helix_temporal"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    tracked = {name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()}
    held = {
        path.relative_to(unpacked).as_posix(): path.read_bytes()
        for path in unpacked.joinpath("helix_temporal").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert tracked <= held.keys()
    assert [name for name in sorted(tracked) if held[name] != (ROOT / name).read_bytes()] == []


SHOWN: str = """
import asyncio, httpx
import helix_temporal
from helix_temporal.backends import Backends
from helix_temporal.inspector import create_inspector
from helix_temporal.settings import Settings

app = create_inspector(Backends(Settings()))
transport = httpx.ASGITransport(app, client=("127.0.0.1", 5))

async def show():
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:1") as browser:
        page = await browser.get(f"/?token={app.state.access.token}", follow_redirects=True)
        kept = {"/static/" + part.split(chr(34))[0] for part in page.text.split("/static/")[1:]}
        return [page.status_code, len(kept) > 2, {(await browser.get(link)).status_code for link in kept}]

print(helix_temporal.__file__, asyncio.run(show()))
"""


def test_the_released_wheel_shows_its_pages(unpacked: Path) -> None:
    """With its own templates, style and scripts: not those of the tree beside it."""
    ran = subprocess.run(
        [sys.executable, "-c", SHOWN],
        cwd=unpacked,
        env={**os.environ, "PYTHONPATH": str(unpacked)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert ran.stdout.strip() == f"{unpacked / 'helix_temporal' / '__init__.py'} [200, True, {{200}}]"


def test_the_wheel_holds_nothing_else(files: set[str]) -> None:
    """Tests, examples and workers would land in everybody's site-packages."""
    assert {name.split("/")[0].split("-")[0] for name in files} == {"helix_temporal"}


def test_the_core_brings_what_the_design_names(about: Message) -> None:
    """Providers, servers and tools are extras; an application installs ten libraries."""
    required = [Requirement(text) for text in about.get_all("Requires-Dist", [])]
    core = {requirement.name: requirement.extras for requirement in required if requirement.marker is None}
    drivers = {"asyncpg", "aiosqlite", "redis", "aioboto3"}
    assert set(core) == {"temporalio", "pydantic", "orjson", "zstandard", "jsonpatch", "typer", *drivers}
    # Read in Python, an answer takes longer than the server takes to give it.
    assert {name: extras for name, extras in core.items() if extras} == {"redis": {"hiredis"}}


def test_the_licence_is_in_the_wheel(about: Message, files: set[str]) -> None:
    """MIT asks for no more than that."""
    assert about["License-Expression"] == "MIT"
    assert any(name.endswith("licenses/LICENSE") for name in files)


def test_constraints_name_versions_and_nothing_else() -> None:
    """No address of a registry: everybody installs from the one they use."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    odd = [line for line in lines if not re.fullmatch(r"#.*|[A-Za-z0-9._-]+==[A-Za-z0-9._+!-]+", line)]
    assert odd == []


def test_every_requirement_is_pinned_within_its_range() -> None:
    """A clone of next year installs what was tested today."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    stated = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    pinned = {canonicalize_name(name): version for name, version in pins().items()}
    requirements = [Requirement(text) for text in stated if not text.startswith("helix-temporal")]
    loose = [
        str(requirement)
        for requirement in requirements
        if not requirement.specifier.contains(pinned.get(canonicalize_name(requirement.name), "0"))
    ]
    assert loose == []


def test_what_is_installed_is_what_is_pinned() -> None:
    """Tests that pass with other versions prove nothing about these."""
    installed = {canonicalize_name(found.name): found.version for found in metadata.distributions()}
    other = {
        name: (installed[canonicalize_name(name)], version)
        for name, version in pins().items()
        if installed.get(canonicalize_name(name), version) != version
    }
    assert other == {}
