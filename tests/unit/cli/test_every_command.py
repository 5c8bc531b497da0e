"""Every command, where something is wrong: it ends by a status of the table, and says why in a line."""

import json
import re
from pathlib import Path
from typing import Final

import pytest

from helix_temporal.cli.statuses import ExitStatus
from tests.unit.cli._stores import add_session, call, conversation, fill

NOWHERE: Final = {"HELIX_ALLOW_PLAINTEXT": "true", "HELIX_TEMPORAL_ADDRESS": "127.0.0.1:1"}
COMMANDS: Final = [
    ["cleanup", "--without-temporal"],
    ["dev", "no-such-server"],
    ["doctor"],
    ["health"],
    ["maintenance"],
    ["migrate"],
    ["sweep"],
    ["worker", "no_such_module"],
    ["session", "list"],
    ["session", "list", "--all"],
    ["session", "show", "x"],
    ["session", "messages", "x"],
    ["session", "messages", "x", "--follow"],
    ["session", "turns", "x"],
    ["session", "calls"],
    ["session", "context", "x"],
    ["session", "state", "x"],
    ["session", "checkpoints", "x"],
    ["session", "tree", "x"],
    ["session", "usage", "x"],
    ["session", "export", "x"],
    ["session", "import", "no-such-file"],
    ["thread", "show", "x"],
    ["thread", "verify", "x"],
    ["thread", "import-v1", "x"],
    ["thread", "export-v1", "x"],
    ["telemetry", "backfill", "--since", "1h"],
]
"""`inspect` serves, whatever its stores are."""
NAMES: Final = [" ".join(each) for each in COMMANDS]


@pytest.mark.parametrize("arguments", COMMANDS, ids=NAMES)
def test_without_stores_no_command_succeeds_or_crashes(arguments: list[str]) -> None:
    """A script must see by the status that nothing was there to read, and by which mistake."""
    found = call(NOWHERE, *arguments)
    assert found.exit_code in set(ExitStatus) - {ExitStatus.DONE}
    assert "Traceback" not in found.output
    assert isinstance(found.exception, SystemExit), found.exception


@pytest.mark.parametrize("arguments", [*COMMANDS, ["inspect"]], ids=[*NAMES, "inspect"])
def test_help_is_for_people_without_the_repository(arguments: list[str]) -> None:
    """It had markup of docstrings, names of Python's types, and paths that an installed package lacks."""
    shown = call(NOWHERE, *arguments, "--help")
    assert shown.exit_code == 0
    assert not re.search("``|<int|docs/", shown.stdout)


AWAY: Final = [each for each in COMMANDS if each[0] in {"session", "thread", "cleanup", "sweep"}]


@pytest.mark.parametrize("arguments", AWAY, ids=[" ".join(each) for each in AWAY])
def test_a_store_that_refuses_connections_is_away(arguments: list[str], tmp_path: Path) -> None:
    """Each command says the same of it, so that a script may try again."""
    stores = {
        **NOWHERE,
        "HELIX_REDIS_URL": "redis://127.0.0.1:1/0",
        "HELIX_V1_PREFIX": "old",
        "HELIX_COLD_DIRECTORY": str(tmp_path),
    }
    found = call(stores, *arguments)
    expected = {ExitStatus.USAGE} if "import" in arguments else {ExitStatus.STORE_AWAY, ExitStatus.PARTLY}
    assert found.exit_code in expected, found.output


@pytest.mark.parametrize("arguments", AWAY, ids=[" ".join(each) for each in AWAY])
def test_a_damaged_database_is_a_status_of_the_table(arguments: list[str], tmp_path: Path) -> None:
    """The file is no database: no command may take it for an empty one."""
    (tmp_path / "helix.db").write_bytes(b"no database at all, though long enough" * 100)
    found = call({**NOWHERE, "HELIX_DATA_DIRECTORY": str(tmp_path)}, *arguments)
    assert found.exit_code in set(ExitStatus) - {ExitStatus.DONE}
    assert isinstance(found.exception, SystemExit), found.exception


@pytest.mark.parametrize("command", ["doctor", "session list", "session show x", "thread show x"])
def test_a_directory_in_another_encoding_is_one(command: str, tmp_path: Path) -> None:
    """Linux takes any bytes for a name, and old disks have names in Latin-1."""
    directory = tmp_path / "d\udce9"
    stores = {"HELIX_DATA_DIRECTORY": str(directory), "HELIX_COLD_DIRECTORY": str(directory)}
    directory.mkdir()
    fill(stores, lambda backends: add_session(backends, "x", *conversation()))
    found = call({**NOWHERE, **stores}, *command.split(), "--json")
    assert isinstance(found.exception, SystemExit | None), found.exception
    assert json.loads(found.stdout)
