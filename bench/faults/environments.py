"""An environment for each framework below build/faults: no two agree on what they need."""

import hashlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = Path(__file__).resolve().parent / "packages"
ENVIRONMENTS: Final = ROOT / "build" / "faults"


class EnvironmentMissingError(Exception):
    """A framework's packages can't be had here; the message says why."""


def list_frameworks() -> list[str]:
    """Those that have packages, by their modules' names."""
    return sorted(path.stem for path in PACKAGES.glob("*.txt"))


def list_versions(framework: str) -> list[str]:
    """The packages that its table is of, each with its version."""
    lines = (PACKAGES / f"{framework}.txt").read_text("utf-8").splitlines()
    return [re.sub(r"\[.*\]", "", line).replace("==", " ") for line in lines]


def ensure_environment(framework: str, say: Callable[[str], None]) -> Path:
    """The interpreter of a framework's environment, made anew if its packages or ours ask for others.

    Raises:
        EnvironmentMissingError: They can't be installed.
    """
    packages, place = PACKAGES / f"{framework}.txt", ENVIRONMENTS / framework
    python, stamp = place / "bin" / "python", place / ".installed"
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    wanted = hashlib.sha256(packages.read_bytes() + repr(ours).encode()).hexdigest()
    if python.exists() and stamp.exists() and stamp.read_text("utf-8") == wanted:
        return python
    say(f"installing {framework} into {place.relative_to(ROOT)}")
    place.parent.mkdir(parents=True, exist_ok=True)
    _run(sys.executable, "-m", "venv", "--clear", str(place))
    options = ("--quiet", "--disable-pip-version-check", "--no-input")
    _run(str(python), "-m", "pip", "install", *options, "-e", str(ROOT), "-r", str(packages))
    stamp.write_text(wanted, "utf-8")
    return python


def _run(*command: str) -> None:
    if subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode:
        raise EnvironmentMissingError(f"can't be installed: {' '.join(command[2:4])} failed, see above")
