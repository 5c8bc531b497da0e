"""Builds the package, as a release does."""

import subprocess
import sys
from pathlib import Path

from tests.architecture._project import ROOT


def build_package(target: Path, *options: str) -> Path:
    """An sdist, and a wheel from it, unless the options of ``python -m build`` say otherwise."""
    ran = subprocess.run(
        [sys.executable, "-m", "build", *options, "--no-isolation", "--outdir", str(target), str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return target
