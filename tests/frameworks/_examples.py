"""Runs an example as its README says."""

import os
import subprocess
import sys

from tests.docs._pages import ROOT, blocks


def check_example(name: str) -> None:
    """It runs alone, without settings, and prints what its README shows."""
    directory = ROOT / "examples" / name
    own = {name: value for name, value in os.environ.items() if not name.startswith("HELIX_")}
    done = subprocess.run(
        [sys.executable, str(directory / f"{name}.py")],
        env=own, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout in blocks(directory / "README.md", "")
