"""Where the project's files are."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = ROOT / "helix_temporal"
MODULES: Final = sorted(path for path in PACKAGE.rglob("*.py") if "__pycache__" not in path.parts)


def relative(path: Path) -> str:
    """A path as failures print it."""
    return path.relative_to(ROOT).as_posix()
