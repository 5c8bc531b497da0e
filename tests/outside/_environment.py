"""A fresh environment with the built wheel in it, and programs that run there as a user's do."""

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PROGRAMS: Final = Path(__file__).resolve().parent / "programs"


@dataclass(frozen=True, slots=True)
class Outside:
    """Where users' programs run.

    Attributes:
        python: Of an environment that has the wheel, and nothing of this checkout.
        directory: A copy of the programs, where Python does not find the checkout's own package.
    """

    python: Path
    directory: Path

    def run(
        self, module: str, *arguments: str, environment: Mapping[str, str] | None = None, seconds: float
    ) -> subprocess.CompletedProcess[str]:
        """Run one of the programs by name; its output is text.

        Raises:
            TimeoutExpired: It takes longer than ``seconds``.
        """
        return subprocess.run(
            [str(self.python), "-m", module, *arguments],
            cwd=self.directory,
            env=_plain_environment() | dict(environment or {}),
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )


def make_outside(directory: Path, programs: Sequence[str], extras: str = "servers") -> Outside:
    """Build the wheel, install it with these extras at the versions that are tested, copy the programs.

    Raises:
        RuntimeError: Something can't be built or installed; the message has pip's last words.
    """
    _call(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", directory / "wheel", ROOT)
    wheel = next((directory / "wheel").glob("*.whl"))
    venv.create(directory / "venv", with_pip=True)
    python = directory / "venv" / "bin" / "python"
    constraints = ("-c", ROOT / "constraints.txt")
    options = ("--disable-pip-version-check", "--no-input", "--quiet")
    _call(python, "-m", "pip", "install", *options, *constraints, f"{wheel}[{extras}]")
    target = directory / "programs"
    for name in programs:
        shutil.copytree(PROGRAMS / name, target / name)
    return Outside(python, target)


def _call(*command: object) -> None:
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        check=False,
        env=_plain_environment(),
    )
    if done.returncode:
        raise RuntimeError(
            f"{command[0]} ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}"
        )


def _plain_environment() -> dict[str, str]:
    """The environment without what points into this checkout, and without settings of ours."""
    ours = ("HELIX_", "PYTHON", "PYTEST", "COVERAGE", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}
