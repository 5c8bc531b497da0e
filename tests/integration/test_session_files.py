"""Session files between real stores: Redis, PostgreSQL and SQLite, alone and with an archive in S3."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

from helix_temporal.backends import Backends
from helix_temporal.cli.commands import app
from helix_temporal.cli.statuses import ExitStatus
from helix_temporal.devstack.valkey import start_valkey
from helix_temporal.models.checkpoints import NewRun, RunRecorded
from helix_temporal.models.messages import Message
from helix_temporal.settings import Settings
from tests._commands import environment
from tests.docs._pages import ROOT
from tests.unit.session_files._scenes import (
    export_bytes,
    import_bytes,
    list_texts,
    make_messages,
    make_tree,
    make_turn,
    open_memory,
)

PLACES: Final = ["postgres", "redis", "sqlite", "postgres+s3", "redis+s3", "redis+postgres+s3"]
Places = Callable[[str], dict[str, str]]


@pytest.fixture
def make_place(
    postgres_dsn: str, redis_url: str, s3_variables: dict[str, str], unique: str, tmp_path: Path
) -> Callable[[str], dict[str, str]]:
    """Makes the variables of empty stores: those that the name lists, each time others."""
    made: list[str] = []

    def make(name: str) -> dict[str, str]:
        own = f"{unique}{len(made)}"
        made.append(own)
        parts = {
            "postgres": {"HELIX_POSTGRES_DSN": postgres_dsn, "HELIX_TABLE_PREFIX": f"{own}_"},
            "redis": {"HELIX_REDIS_URL": redis_url, "HELIX_REDIS_PREFIX": f"{own}:"},
            "sqlite": {"HELIX_DATA_DIRECTORY": str(tmp_path / own)},
            "s3": {**s3_variables, "HELIX_S3_PREFIX": own},
        }
        variables = {"HELIX_ALLOW_PLAINTEXT": "true"}
        for part in name.split("+"):
            variables |= parts[part]
        if "postgres" in name:
            make_tables(variables)
        return variables

    return make


def make_tables(variables: dict[str, str]) -> None:
    """Make the tables, also for a test that has a loop: the command runs one of its own."""
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(CliRunner().invoke, app, ["migrate"], env=variables).result()
    assert done.exit_code == 0, done.output


@asynccontextmanager
async def open_place(variables: dict[str, str]) -> AsyncIterator[Backends]:
    """The stores that variables name."""
    backends = Backends(Settings.from_env(variables))
    try:
        yield backends
    finally:
        await backends.close()


@pytest.mark.parametrize("name", PLACES)
async def test_a_tree_comes_back_from_every_store_with_equal_bytes(name: str, make_place: Places) -> None:
    """Backups are read elsewhere than where they were written: that is what they are for."""
    variables, others = make_place(name), make_place(PLACES[PLACES.index(name) - 1])
    async with open_memory() as source, open_place(variables) as target, open_place(others) as third:
        await make_tree(source)
        data = await export_bytes(source, children=True)
        assert (await import_bytes(target, data)).outcome == "imported"
        assert (await import_bytes(target, data)).outcome == "there"
        again = await export_bytes(target, children=True)
        assert again == data
        await import_bytes(third, again)
        assert await export_bytes(third, children=True) == data


@pytest.mark.parametrize("name", PLACES)
async def test_an_imported_session_goes_on_in_every_store(name: str, make_place: Places) -> None:
    """Its turns are counted on, and another process, which knows nothing of the import, appends to it."""
    variables = make_place(name)
    async with open_memory() as source, open_place(variables) as target:
        await make_tree(source)
        await import_bytes(target, await export_bytes(source))
    async with open_place(variables) as target:
        started = await target.sessions.start_run("s", NewRun(run_id="run-3"))
        await target.sessions.append_messages("s", [Message(id="u3", role="user", content="And now?")])
        assert isinstance(started, RunRecorded)
        assert started.run.turn == 3
        assert (await list_texts(target))[-2:] == ["Order 2 was sent.", "And now?"]
        listed = await target.sessions.list_sessions()
        assert [each.title for each in listed.sessions] == ["Where is my order?"]


@pytest.mark.parametrize("trial", [[], ["--dry-run"]], ids=["import", "trial"])
def test_an_import_into_a_redis_that_evicts_is_refused(
    make_place: Places, tmp_path: Path, trial: list[str]
) -> None:
    """A worker does not start there: a session would lose its messages as soon as memory is short."""
    source, file = make_place("sqlite"), tmp_path / "s.jsonl"

    async def make() -> None:
        async with open_place(source) as stores:
            await make_tree(stores)

    asyncio.run(make())
    assert CliRunner().invoke(app, ["session", "export", "s", "-o", str(file)], env=source).exit_code == 0
    with start_valkey(arguments=("--maxmemory-policy", "allkeys-lru")) as server:
        target = {"HELIX_REDIS_URL": server.url, "HELIX_ALLOW_PLAINTEXT": "true"}
        found = CliRunner().invoke(app, ["session", "import", str(file), *trial], env=target)
        assert (found.exit_code, found.stdout) == (ExitStatus.FAILED, "")
        assert "allkeys-lru" in found.stderr
        assert server.ask("DBSIZE") == 0


@pytest.fixture(scope="module")
def ten_thousand() -> bytes:
    """The file of a session of 10,000 messages."""

    async def make() -> bytes:
        async with open_memory() as source:
            await source.sessions.create_session("s")
            for number in range(10):
                first = number * 250
                messages = [each for at in range(200) for each in make_messages(first + at)]
                await source.sessions.append_messages("s", messages)
            for number in range(500):
                await make_turn(source, "s", 10_000 + number)
            return await export_bytes(source)

    return asyncio.run(make())


@pytest.mark.parametrize("name", PLACES)
async def test_ten_thousand_messages_come_back_with_equal_bytes(
    name: str, make_place: Places, ten_thousand: bytes
) -> None:
    """In pages and steps of a thousand, with 500 runs that come in one commit."""
    async with open_place(make_place(name)) as target:
        done = await import_bytes(target, ten_thousand)
        assert (done.outcome, done.messages) == ("imported", 10_000)
        assert await export_bytes(target) == ten_thousand


@pytest.mark.parametrize("name", ["redis+s3", "redis+postgres+s3"])
async def test_an_imported_session_survives_a_wiped_redis(name: str, make_place: Places) -> None:
    """An import that is acknowledged is archived, as every turn is."""
    variables = make_place(name)
    async with open_memory() as source, open_place(variables) as target:
        await make_tree(source)
        await import_bytes(target, await export_bytes(source))
    # Another prefix in Redis: nothing of before is there.
    variables["HELIX_REDIS_PREFIX"] += "wiped:"
    async with open_place(variables) as target:
        assert (await list_texts(target))[-1] == "Order 2 was sent."


_EXPORT: Final = """
import asyncio, os, signal, sys
from pathlib import Path
from helix_temporal.backends import Backends
from helix_temporal.session_files import export_session
from helix_temporal.settings import Settings

def die(done, total):
    if done >= int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

stores = Backends(Settings.from_env(os.environ))
asyncio.run(export_session(stores, "s", Path(sys.argv[1]), progress=die))
"""
_IMPORT: Final = """
import asyncio, os, signal, sys
from helix_temporal.backends import Backends
from helix_temporal.session_files import import_session
from helix_temporal.settings import Settings

def die(what, done, total):
    if what == "import" and done >= int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

stores = Backends(Settings.from_env(os.environ))
with open(sys.argv[1], "rb") as file:
    asyncio.run(import_session(stores, file, progress=die))
"""


def run_until_killed(script: str, variables: dict[str, str], file: Path, at: int) -> None:
    """A process that works on a file, and kills itself with SIGKILL when it is so far."""
    done = subprocess.run(
        [sys.executable, "-c", script, str(file), str(at)],
        cwd=ROOT,
        env=environment(variables),
        check=False,
        timeout=100,
        capture_output=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


@pytest.fixture
def long_file(tmp_path: Path) -> Path:
    """A session of 3,000 messages in a file."""

    async def make() -> bytes:
        async with open_memory() as source:
            await source.sessions.create_session("s")
            for number in range(1, 751):
                await make_turn(source, "s", number)
            return await export_bytes(source)

    path = tmp_path / "long.jsonl"
    path.write_bytes(asyncio.run(make()))
    return path


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_an_export_that_is_killed_leaves_no_file(make_place: Places, long_file: Path, tmp_path: Path) -> None:
    """Whoever finds the file takes it for the session."""
    variables = make_place("sqlite")
    assert CliRunner().invoke(app, ["session", "import", str(long_file)], env=variables).exit_code == 0
    directory = tmp_path / "out"
    directory.mkdir()
    run_until_killed(_EXPORT, variables, directory / "s.jsonl", 1_500)
    assert list(directory.iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
@pytest.mark.parametrize("at", [500, 1_500, 3_000])
@pytest.mark.parametrize("name", ["sqlite", "redis+postgres+s3"])
def test_an_import_that_is_killed_is_ended_by_a_repeat(
    name: str, at: int, make_place: Places, long_file: Path, tmp_path: Path
) -> None:
    """At the end as in the middle: after the last message and before the state."""
    variables = make_place(name)
    run_until_killed(_IMPORT, variables, long_file, at)
    assert '"sessions":[]' in CliRunner().invoke(app, ["session", "list", "--json"], env=variables).stdout
    assert CliRunner().invoke(app, ["session", "import", str(long_file)], env=variables).exit_code == 0
    again = tmp_path / "again.jsonl"
    exported = CliRunner().invoke(app, ["session", "export", "s", "-o", str(again)], env=variables)
    assert (exported.exit_code, again.read_bytes() == long_file.read_bytes()) == (0, True)
