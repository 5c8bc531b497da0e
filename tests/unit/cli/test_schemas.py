"""The schemas that are published are those of what commands print."""

from typing import Final

import pytest

from helix_temporal.cli.commands import COMMANDS, GROUPS
from helix_temporal.cli.schemas import OUTPUTS
from tests.unit.cli._schemas import SCHEMAS, SERVES, file_of, schema_text

PATHS: Final = [*COMMANDS, *(f"{group} {name}" for group, (rows, _) in GROUPS.items() for name in rows)]


@pytest.mark.parametrize("command", sorted(OUTPUTS))
def test_a_published_schema_is_that_of_the_model(command: str) -> None:
    """Programs are written by the schema.  `python -m tests.unit.cli._schemas` writes them."""
    assert file_of(command).read_text() == schema_text(command, OUTPUTS[command])


def test_no_schema_is_left_of_a_command_that_has_gone() -> None:
    """It would promise what nobody prints."""
    assert sorted(SCHEMAS.glob("*.json")) == sorted(file_of(command) for command in OUTPUTS)


@pytest.mark.parametrize("path", sorted(set(PATHS) - SERVES))
def test_every_command_has_a_schema(path: str) -> None:
    """`--json` is on every command, so each says what comes."""
    assert path in OUTPUTS


def test_schemas_are_of_commands_that_exist() -> None:
    """A name that is misspelt would be a schema of nothing."""
    assert {command.partition(" --")[0] for command in OUTPUTS} <= set(PATHS)
