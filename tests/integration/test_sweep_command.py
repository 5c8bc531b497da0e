"""``helix-temporal sweep`` on real stores, and the archive that each hot store remembers."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from helix_temporal.backends import Backends
from helix_temporal.cli.commands import app
from helix_temporal.errors import ForeignDeploymentError
from helix_temporal.models.maintenance import SweepResult
from helix_temporal.models.messages import Message
from helix_temporal.settings import Settings
from helix_temporal.stores.protocols.sessions import SessionStore


@pytest.fixture
def variables(empty_store: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """An empty hot store with an archive."""
    (tmp_path / "cold").mkdir()
    return empty_store | {"HELIX_COLD_DIRECTORY": str(tmp_path / "cold")}


def with_store(variables: dict[str, str], use: Callable[[SessionStore], Awaitable[Any]]) -> Any:
    """Use the store as another process would."""

    async def run() -> Any:
        backends = Backends(Settings.from_env(variables))
        assert backends.sessions is not None
        try:
            return await use(backends.sessions)
        finally:
            await backends.close()

    return asyncio.run(run())


async def append(store: SessionStore) -> None:
    """One message in a session."""
    await store.create_session("s", if_not_exists=True)
    await store.append_messages("s", [Message(id="m", role="user", content="hi")])


def sweep(variables: dict[str, str], *arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(app, ["sweep", *arguments], env=variables)


def numbers(found: Result) -> dict[str, int]:
    """What it counted."""
    assert found.exit_code == 0, found.output
    return {line.split()[0]: int(line.split()[-1]) for line in found.stdout.splitlines()}


def test_one_pass_archives_what_is_hot(variables: dict[str, str]) -> None:
    """A second one finds nothing to do; with --evict the hot store is empty, and the session is read."""
    with_store(variables, append)
    assert numbers(sweep(variables)) == {"seen": 1, "archived": 1, "clean": 0, "gone": 0, "failures": 0}
    assert numbers(sweep(variables, "--evict"))["clean"] == 1
    assert numbers(sweep(variables))["seen"] == 0
    assert with_store(variables, lambda store: store.get_message_count("s")) == 1


def test_a_sweep_without_an_archive_is_refused(variables: dict[str, str]) -> None:
    """It would do nothing each minute, and nobody would know."""
    found = sweep({**variables, "HELIX_COLD_DIRECTORY": ""})
    assert found.exit_code == 2
    assert "there is no archive" in found.output


def test_each_hot_store_remembers_its_archive(variables: dict[str, str], tmp_path: Path) -> None:
    """A process without it, or with another one, is refused before it reads or writes."""
    with_store(variables, append)
    (tmp_path / "other").mkdir()
    for cold in ("", str(tmp_path / "other")):
        strange = {**variables, "HELIX_COLD_DIRECTORY": cold}
        for use in (append, lambda store: store.get_messages("s")):
            with pytest.raises(ForeignDeploymentError, match="HELIX_COLD_DIRECTORY"):
                with_store(strange, use)


def test_with_json_the_counts_are_data(variables: dict[str, str]) -> None:
    """A timer's log is read by a program."""
    with_store(variables, append)
    found = SweepResult.model_validate_json(sweep(variables, "--json").stdout)
    assert (found.seen, found.archived, found.failures) == (1, 1, 0)
