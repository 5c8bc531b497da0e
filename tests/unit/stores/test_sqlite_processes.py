"""Several processes on one database, and processes that are killed: nothing is lost, nothing is doubled."""

import asyncio
import random
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

from helix_temporal.errors import StoreUnavailableError
from helix_temporal.stores.sqlite import SqliteBackend
from helix_temporal.testing.builders import a_header, opened

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


async def start(what: str, file: Path, *arguments: str) -> Process:
    """A child that does one of the things in `_sqlite_child`."""
    module = "tests.unit.stores._sqlite_child"
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, what, str(file), *arguments, cwd=ROOT, stdin=PIPE, stdout=PIPE
    )


async def output(*children: Process) -> list[str]:
    """What each of them wrote, once all have ended well."""
    for child in children:
        assert child.stdin is not None
        child.stdin.close()
    written = [out.decode() for out, _ in await asyncio.gather(*(child.communicate() for child in children))]
    assert [child.returncode for child in children] == [0] * len(children)
    return written


async def thread_in(file: Path) -> None:
    """A thread that children append to."""
    backend = SqliteBackend(file)
    await opened(backend.threads, "t")
    await backend.close()


async def ids_in(file: Path) -> list[str]:
    """Of its messages, in order; the header says how many they are."""
    backend = SqliteBackend(file)
    held = await backend.threads.read_snapshot("t", 0)
    await backend.close()
    assert held is not None
    assert held.header.head.position == len(held.messages)
    return [message.id for message in held.messages]


async def test_acknowledged_appends_outlive_a_kill_at_any_time(data_directory: Path) -> None:
    """What was acknowledged is there, in order, once; at most one more message is."""
    await _kill_appenders(data_directory, rounds=4)


@pytest.mark.campaign
@pytest.mark.timeout(1_800)
async def test_acknowledged_appends_outlive_500_kills(data_directory: Path) -> None:
    """The long form."""
    await _kill_appenders(data_directory, rounds=500)


async def _kill_appenders(place: Path, *, rounds: int) -> None:
    chance = random.Random(123)
    for number in range(rounds):
        file = place / f"{number // 20}.db"
        if not file.exists():
            await thread_in(file)
        child = await start("append_until_killed", file)
        assert child.stdout is not None
        first = await child.stdout.readline()
        await asyncio.sleep(chance.random() * 0.1)
        child.kill()
        lines = [first, *(await child.stdout.read()).splitlines()]
        await child.wait()
        acknowledged = int(lines[-1]) if lines[-1].strip() else 0
        ids = await ids_in(file)
        assert len(ids) in {acknowledged, acknowledged + 1}
        assert ids == [f"m{at}" for at in range(len(ids))]


async def test_appends_from_four_processes_are_neither_lost_nor_doubled(data_directory: Path) -> None:
    """Workers of one machine share the file, which the first of them makes; a program need not close it."""
    file = data_directory / "helix.db"
    await thread_in(file)
    await output(*[await start("append_some", file, who, "25") for who in "abcd"])
    ids = await ids_in(file)
    assert sorted(ids) == sorted(f"{who}-{number}" for who in "abcd" for number in range(25))
    assert [each for each in ids if each.startswith("a")] == [f"a-{number}" for number in range(25)]


async def test_processes_make_a_new_file_at_the_same_time(data_directory: Path) -> None:
    """All tables are there when the first of them writes."""
    backends = [SqliteBackend(data_directory / "helix.db", timeout=60) for _ in range(8)]
    headers = await asyncio.gather(
        *(each.threads.install(a_header("t"), (), replace=False) for each in backends for _ in range(4))
    )
    await asyncio.gather(*(each.close() for each in backends))
    assert len(set(headers)) == 1


async def test_a_writer_that_does_not_end_is_waited_for_and_then_told(data_directory: Path) -> None:
    """Nothing hangs for ever; readers do not wait at all."""
    file = data_directory / "helix.db"
    await thread_in(file)
    child = await start("hold", file)
    assert child.stdout is not None
    assert await child.stdout.readline() == b"held\n"
    backend = SqliteBackend(file, timeout=0.2)
    assert await backend.threads.read_header("t") is not None
    with pytest.raises(StoreUnavailableError, match="others wrote"):
        await backend.threads.close_epoch("t", 1)
    await output(child)
    await backend.threads.close_epoch("t", 1)
    await backend.close()


async def test_a_file_that_may_only_be_read_is_a_lasting_error(open_directory: Path) -> None:
    """Repeating would not help: an administrator must."""
    await thread_in(open_directory / "helix.db")
    (open_directory / "helix.db").chmod(0o644)
    (told,) = await output(await start("without_rights", open_directory / "helix.db"))
    assert told.startswith("UnsupportedServerError")
