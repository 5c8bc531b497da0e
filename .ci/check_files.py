"""Checks of single files, for pre-commit: TOML, YAML and JSON parse, text ends with one newline."""

import json
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

PARSERS: dict[str, Callable[[str], Any]] = {
    ".toml": tomllib.loads,
    ".yaml": yaml.safe_load,
    ".yml": yaml.safe_load,
    ".json": json.loads,
}


def problem(path: Path) -> str | None:
    """What is wrong with a file, or nothing."""
    text = path.read_text(encoding="utf-8")
    if text and not text.endswith("\n"):
        return "no newline at the end"
    if text.endswith("\n\n"):
        return "blank lines at the end"
    parse = PARSERS.get(path.suffix)
    try:
        if parse:
            parse(text)
    except (ValueError, yaml.YAMLError) as error:
        return str(error)
    return None


def main(names: list[str]) -> int:
    """Print each problem; the exit code says whether there was one."""
    found = [f"{name}: {what}" for name in names if (what := problem(Path(name)))]
    sys.stderr.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
