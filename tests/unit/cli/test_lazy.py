"""Lists of commands bring nothing along that only commands need."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from helix_temporal.backends import Backends
from helix_temporal.cli._lazy import LazyCommand, Row
from helix_temporal.cli.commands import COMMANDS, GROUPS, app
from helix_temporal.models.states import CreateSession
from helix_temporal.settings import Settings
from tests.unit.cli._schemas import SERVES

MODULES: Final = """
import sys
from helix_temporal.cli import main
sys.argv[0] = "helix-temporal"
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""
HEAVY: Final = {
    "asyncpg",
    "boto3",
    "helix_temporal.backends",
    "helix_temporal.views",
    "redis",
    "rich",
    "temporalio",
}
LAZY: Final = [
    *((name, row) for name, row in COMMANDS.items()),
    *((name, row) for rows, _ in GROUPS.values() for name, row in rows.items()),
]


@pytest.mark.parametrize("arguments", [["--help"], ["session", "--help"], ["--version"], ["sesion"], []])
def test_a_list_of_commands_brings_no_driver_along(arguments: list[str]) -> None:
    """`--help` took two seconds: each module of a command imports all stores and Temporal's SDK."""
    found = subprocess.run(
        [sys.executable, "-c", MODULES, *arguments], capture_output=True, text=True, check=False
    )
    assert found.returncode in {0, 2}
    assert HEAVY & set(found.stderr.split()) == set()


@pytest.mark.parametrize(("name", "row"), LAZY)
def test_every_row_of_the_table_is_a_command(name: str, row: Row) -> None:
    """A module that was renamed is found here, not by who calls the command; its help is what it says."""
    command = LazyCommand(name, row).load()
    assert command.name == name
    assert command.help


@pytest.mark.parametrize(("name", "row"), [each for each in LAZY if each[0] not in SERVES])
def test_every_command_has_json(name: str, row: Row) -> None:
    """Whoever scripts one command knows how to script the next."""
    command = LazyCommand(name, row).load()
    assert "--json" in [option for parameter in command.params for option in parameter.opts]


def test_a_group_lists_its_commands_by_name() -> None:
    """As each list of names."""
    root = get_command(app)
    assert isinstance(root, TyperGroup)
    context = root.make_context("helix-temporal", ["session"])
    assert root.list_commands(context) == sorted([*COMMANDS, *GROUPS])


async def test_a_list_of_sessions_opens_no_archive(tmp_path: Path) -> None:
    """The client of S3 alone takes 25 MB: a list needs the rows of the session store, and no more."""
    backends = Backends(Settings(data_directory=tmp_path))
    await backends.sessions.create_session("s", CreateSession(user_id="u"))
    await backends.close()
    stores = {
        "HELIX_DATA_DIRECTORY": str(tmp_path),
        "HELIX_S3_BUCKET": "none",
        "HELIX_S3_ENDPOINT": "http://127.0.0.1:1",
        "HELIX_ARCHIVE": "required",
    }
    for command in (["session", "list"], ["session", "list", "--all"]):
        found = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", MODULES, *command, "--json"],
            env=os.environ | stores,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (found.returncode, '"u"' in found.stdout) == (0, True), found.stderr[:500]
        assert "aioboto3" not in found.stderr.split()
