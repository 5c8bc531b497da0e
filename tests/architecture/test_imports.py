"""Which module may import which: the contracts of ``[tool.importlinter]``, and doors that stay light."""

import ast
import builtins
import collections.abc
import importlib
import importlib.metadata
import inspect
import subprocess
import sys
import textwrap
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import temporalio.client
import temporalio.common

import helix_temporal
from helix_temporal import client
from tests.architecture._project import MODULES, ROOT, relative

DRIVERS: Final = {"asyncpg", "aiosqlite", "redis", "aioboto3", "aiobotocore", "boto3", "botocore", "aiohttp"}
HEAVY: Final = {*DRIVERS, "temporalio", "pydantic", "pydantic_core"}
LIGHT: Final = (
    "helix_temporal",
    "helix_temporal.models",
    "helix_temporal.agents",
    "helix_temporal.activities",
    "helix_temporal.workflows",
    "helix_temporal.client",
    "helix_temporal.errors",
    "helix_temporal.settings",
    "helix_temporal.stores.protocols",
    "helix_temporal.blobs",
    "helix_temporal.coldtier",
    "helix_temporal.devstack",
    "helix_temporal.cli",
)


def test_the_import_contracts_are_kept() -> None:
    """Layers that leak can't be taken apart any more; a driver in the wrong place makes workflows heavy."""
    checked = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_door_opens_without_any_driver() -> None:
    """Redis costs some 100 ms per workflow run; with aioboto3 workflows don't load in the sandbox at all."""
    # One process for all of them: what none of them brings, each opens without.
    code = f"""
import importlib, sys
for door in {LIGHT!r}:
    importlib.import_module(door)
    if found := sorted({DRIVERS!r} & sys.modules.keys()):
        sys.exit(f"{{door}} brings {{found}}")
"""
    opened = subprocess.run(
        [sys.executable, "-I", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert opened.returncode == 0, opened.stderr


def run_fresh(code: str) -> "subprocess.CompletedProcess[str]":
    """Run it in an interpreter that has imported nothing yet."""
    command = [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_first_door_opens_without_anything_heavy() -> None:
    """A program that only reads the version, or one name, does not wait for the SDK and the drivers."""
    opened = run_fresh(f"import helix_temporal; print(sorted({HEAVY!r} & sys.modules.keys()))")
    assert (opened.stdout, opened.stderr) == ("[]\n", "")


def test_the_first_door_lists_what_it_has() -> None:
    """Editors read the list and the imports for type checkers; programs get what the table says."""
    imported = {
        alias.name: node.module
        for node in ast.walk(ast.parse(Path(helix_temporal.__file__).read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("helix_temporal")
        for alias in node.names
    }
    assert imported == helix_temporal._MODULES
    assert sorted(helix_temporal.__all__) == sorted(helix_temporal._MODULES)
    assert set(helix_temporal.__all__) <= set(dir(helix_temporal))


def test_the_package_tells_its_version() -> None:
    """The one that is installed."""
    assert helix_temporal.__version__ == importlib.metadata.version("helix_temporal")


@pytest.mark.parametrize("name", helix_temporal.__all__)
def test_a_name_of_the_first_door_is_that_of_its_module(name: str) -> None:
    """Whoever imports from the module and whoever imports from the door compare the same classes."""
    module = importlib.import_module(helix_temporal._MODULES[name])
    assert getattr(helix_temporal, name) is getattr(module, name)
    assert name in getattr(module, "__all__", [name])


def test_a_name_that_the_first_door_does_not_have_is_an_attribute_error() -> None:
    """``hasattr`` and ``from helix_temporal import errors`` depend on this error."""
    assert not hasattr(helix_temporal, "Agnet")


def test_the_first_door_gives_a_workflow_the_classes_that_it_passes_through(tmp_path: Path) -> None:
    """Of two copies of one class, a workflow would not recognise the other's instances."""
    (tmp_path / "flow.py").write_text(
        """
from temporalio import workflow
with workflow.unsafe.imports_passed_through():
    from helix_temporal import HelixError
    from helix_temporal.errors import HelixError as same
print(HelixError is same, id(HelixError))
@workflow.defn
class Flow:
    @workflow.run
    async def run(self) -> None: ...
"""
    )
    loaded = run_fresh(
        f"""
sys.path.insert(0, {str(tmp_path)!r})
import asyncio, flow
from temporalio import workflow
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner
async def load():
    SandboxedWorkflowRunner().prepare_workflow(workflow._Definition.must_from_class(flow.Flow))
asyncio.run(load())
"""
    )
    outside, *inside = loaded.stdout.splitlines()
    assert loaded.stderr == ""
    assert outside.startswith("True ")
    assert inside == [outside]


def test_nothing_in_the_package_goes_through_the_first_door() -> None:
    """Behind it is everything: a layer that imports from it imports what is above it."""
    through = [
        f"{relative(module)}:{node.lineno}"
        for module in MODULES
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.ImportFrom)
        and node.module == "helix_temporal"
        and not {alias.name for alias in node.names}.isdisjoint(helix_temporal.__all__)
    ]
    assert through == []


NOT_PUBLIC: Final = {"helix_temporal/plugin.py: temporalio.activity._Definition"}
"""Nothing public tells the name under which an activity is called."""


def test_nothing_in_the_package_needs_what_is_not_public_in_the_sdk() -> None:
    """A release of Temporal's SDK may change it, and with it every worker would fail to start."""
    found = {
        f"{relative(module)}: {node.module}.{alias.name}"
        for module in MODULES
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "temporalio"
        for alias in node.names
        if any(part.startswith("_") for part in [*(node.module or "").split("."), alias.name])
    }
    assert found == NOT_PUBLIC


def annotated_names(holder: type) -> Iterator[tuple[str, object]]:
    """The names in the annotations of a class's public methods, and what they stand for."""
    for part in (each for each in holder.__mro__ if each.__module__.startswith("helix_temporal")):
        known = {**vars(builtins), **vars(sys.modules[part.__module__])}
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(part)))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_public(node.name, part):
                arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.kwarg]
                written = [node.returns, *(each.annotation for each in arguments if each is not None)]
                parts = [name for each in written if each is not None for name in ast.walk(each)]
                yield from ((each.id, known[each.id]) for each in parts if isinstance(each, ast.Name))


def is_public(method: str, holder: type) -> bool:
    """Whether an application calls it; of these classes it makes only a client itself."""
    return not method.startswith("_") or (method == "__init__" and holder is client.SessionClient)


@pytest.mark.parametrize("holder", [client.SessionClient, client.SessionHandle, client.LiveAsk])
def test_the_client_has_every_type_that_its_methods_take_or_return(holder: type) -> None:
    """An application annotates its own functions with them, and should not look for their modules."""
    elsewhere = [builtins, typing, collections.abc, temporalio.client, temporalio.common]
    theirs = {name for module in elsewhere for name in vars(module)}
    ours = {name: found for name, found in annotated_names(holder) if name not in theirs}
    assert ours
    assert {name: getattr(client, name, None) for name in ours} == ours
    assert ours.keys() <= set(client.__all__)
