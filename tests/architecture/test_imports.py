"""Which module may import which: the contracts of ``[tool.importlinter]``, and doors that stay light."""

import subprocess
import sys
from typing import Final

from tests.architecture._project import ROOT

DRIVERS: Final = {"asyncpg", "redis", "aioboto3", "aiobotocore", "boto3", "botocore", "aiohttp"}
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
