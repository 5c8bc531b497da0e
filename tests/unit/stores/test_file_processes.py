"""Several processes on one directory, and processes that are killed: old or new, never half."""

import asyncio
import random
from pathlib import Path

import pytest

from helix_temporal.stores.file import FileBackend, FileThreads
from helix_temporal.stores.file._documents import Change, Documents
from helix_temporal.stores.file._format import Part
from helix_temporal.testing.builders import a_header, opened
from tests.unit.stores._file_processes import output, start

OLD, NEW = b"o" * 100_000, b"n" * 100_000
NOT_YET = ["locked", "created", "written", "synced"]
DONE = ["renamed", "settled"]


def files(directory: Path) -> list[str]:
    """Names of all files there."""
    return sorted(path.name for path in directory.iterdir())


async def put(documents: Documents, body: bytes) -> None:
    """Write the document that children write, too."""
    await documents.change("id", lambda _: Change(None, {"part": Part({}, body)}))


@pytest.mark.parametrize(
    ("step", "left"), [*((step, OLD) for step in NOT_YET), *((step, NEW) for step in DONE)]
)
async def test_a_writer_killed_at_any_step_leaves_the_old_or_the_new_document(
    tmp_path: Path, step: str, left: bytes
) -> None:
    """A worker may be killed at any instruction, and its session goes on elsewhere."""
    documents = Documents(tmp_path)
    await put(documents, OLD)
    child = await start("die_at", tmp_path, step, "n")
    assert await child.wait() == 9
    assert (await documents.read("id"))["part"].body == left
    assert [listed.id async for listed in documents.entries()] == ["id"]
    await asyncio.wait_for(put(documents, b"next"), 60)
    assert (await Documents(tmp_path).read("id"))["part"].body == b"next"
    assert files(tmp_path) == ["id.helix", "id.lock"]


@pytest.mark.parametrize("step", NOT_YET)
async def test_a_first_writer_that_was_killed_leaves_nothing(tmp_path: Path, step: str) -> None:
    """Half a session is no session; and the listing takes what is left of it away."""
    child = await start("die_at", tmp_path / "data", step, "n")
    assert await child.wait() == 9
    documents = Documents(tmp_path / "data")
    assert await documents.read("id") == {}
    assert [listed async for listed in documents.entries()] == []
    assert files(tmp_path / "data") == []


async def test_acknowledged_appends_outlive_a_kill_at_any_time(tmp_path: Path) -> None:
    """What was acknowledged is there, in order, once; at most one more message is."""
    await _kill_appenders(tmp_path, rounds=6)


@pytest.mark.campaign
@pytest.mark.timeout(1_800)
async def test_acknowledged_appends_outlive_500_kills(tmp_path: Path) -> None:
    """The long form."""
    await _kill_appenders(tmp_path, rounds=500)


async def _kill_appenders(directory: Path, *, rounds: int) -> None:
    await opened(FileThreads(Documents(directory)), "t")
    chance = random.Random(123)
    for _ in range(rounds):
        child = await start("append_until_killed", directory)
        assert child.stdout is not None
        first = await child.stdout.readline()
        await asyncio.sleep(chance.random() * 0.1)
        child.kill()
        lines = [first, *(await child.stdout.read()).splitlines()]
        await child.wait()
        acknowledged = int(lines[-1]) if lines[-1].strip() else 0
        held = await FileThreads(Documents(directory)).snapshot("t", 0)
        assert held is not None
        assert held.header.head.position in {acknowledged, acknowledged + 1}
        assert [record.id for record in held.records] == [f"m{at}" for at in range(len(held.records))]


async def test_appends_from_four_processes_are_neither_lost_nor_doubled(tmp_path: Path) -> None:
    """Workers of one machine share the directory."""
    await opened(FileThreads(Documents(tmp_path)), "t")
    children = [await start("append_some", tmp_path, who, "25") for who in "abcd"]
    await output(*children)
    held = await FileThreads(Documents(tmp_path)).snapshot("t", 0)
    assert held is not None
    ids = [record.id for record in held.records]
    assert sorted(ids) == sorted(f"{who}-{number}" for who in "abcd" for number in range(25))
    of_a = [each for each in ids if each.startswith("a")]
    assert of_a == [f"a-{number}" for number in range(25)]


async def test_a_lock_that_goes_with_its_document_still_locks(tmp_path: Path) -> None:
    """Whoever waited for the lock of a document that was removed must not think that he holds it."""
    children = [await start("put_and_take", tmp_path, who, "60") for who in "abcd"]
    taken = " ".join(await output(*children)).split()
    left = (await Documents(tmp_path).read("id")).get("marks")
    marks = [*taken, *(left.body.decode().split() if left else [])]
    assert sorted(marks) == sorted(f"{who}-{number}" for who in "abcd" for number in range(60))
    assert files(tmp_path) == (["id.helix", "id.lock"] if left else [])


async def test_tasks_of_one_process_stand_in_line(tmp_path: Path) -> None:
    """32 opens at once: one is first, and all see what it made."""
    threads = FileBackend(tmp_path).threads
    headers = await asyncio.gather(*(threads.install(a_header("t"), (), replace=False) for _ in range(32)))
    assert len(set(headers)) == 1
