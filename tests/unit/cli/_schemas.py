"""The published schemas of what commands print; ``python -m tests.unit.cli._schemas`` writes them."""

import json
from pathlib import Path
from typing import Final

from pydantic import BaseModel

from helix_temporal.cli.schemas import OUTPUTS
from tests.docs._pages import ROOT

SCHEMAS: Final = ROOT / "docs" / "schemas" / "commands"
SERVES: Final = frozenset({"dev", "inspect", "maintenance", "worker"})
"""Commands that print no result, but serve until they are stopped."""


def file_of(command: str) -> Path:
    """Where a command's schema is: ``session list --all`` is in session-list-all.json."""
    return SCHEMAS / f"{command.replace(' --', '-').replace(' ', '-')}.json"


def schema_text(command: str, model: type[BaseModel]) -> str:
    schema = model.model_json_schema(mode="serialization")
    title = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"helix-temporal {command}"}
    return json.dumps({**schema, **title}, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def write_schemas() -> None:
    SCHEMAS.mkdir(parents=True, exist_ok=True)
    for path in SCHEMAS.glob("*.json"):
        path.unlink()
    for command, model in OUTPUTS.items():
        file_of(command).write_text(schema_text(command, model))


if __name__ == "__main__":
    write_schemas()
