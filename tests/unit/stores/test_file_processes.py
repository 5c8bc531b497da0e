"""Several processes on one directory, and processes that are killed: old or new, never half."""

import asyncio
import random
from pathlib import Path

import pytest

from helix_temporal.errors import StoreCorruptError
from helix_temporal.models.store_calls import SessionQuery
from helix_temporal.stores.file import FileBackend, FileSessions, FileThreads
from helix_temporal.stores.file._documents import DocumentChange, Documents
from helix_temporal.stores.file._format import Part
from helix_temporal.stores.protocols.session_records import RecordKind, WantedRecords
from helix_temporal.testing.builders import EPOCH, a_header, all_of, opened
from helix_temporal.testing.contracts._records_base import a_change, a_row
from tests.unit.stores._file_child import the_commit
from tests.unit.stores._file_processes import output, start

OLD, NEW = b"o" * 100_000, b"n" * 100_000
NOT_YET = ["locked", "created", "written", "synced"]
DONE = ["renamed", "settled"]


def files(directory: Path) -> list[str]:
    """Names of all files there."""
    return sorted(path.name for path in directory.iterdir())


async def put(documents: Documents, body: bytes) -> None:
    """Write the document that children write, too."""
    await documents.change("id", lambda _: DocumentChange(None, {"part": Part({}, body)}))


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


@pytest.mark.parametrize(
    ("step", "done"), [*((step, False) for step in NOT_YET), *((step, True) for step in DONE)]
)
async def test_a_killed_commit_is_there_with_its_step_or_not_at_all(
    tmp_path: Path, step: str, done: bool
) -> None:
    """State, checkpoint and messages never tell of different turns; the same commit again is done once."""
    documents = Documents(tmp_path)
    sessions, threads = FileSessions(documents), FileThreads(documents)
    await opened(threads, "s")
    await sessions.commit(a_change("s", row=a_row("s", b"old state")))
    child = await start("commit_and_die_at", tmp_path, step)
    assert await child.wait() == 9
    assert await _seen(sessions, threads) == (AFTER if done else BEFORE)
    again = await sessions.commit(the_commit("s"))
    assert (again is None) is done
    assert await _seen(sessions, threads) == AFTER


BEFORE: object = (b"old state", [], [])
AFTER: object = (b"new state", ["c1"], ["new"])


async def _seen(sessions: FileSessions, threads: FileThreads) -> object:
    view = await sessions.view("s", WantedRecords(groups=((RecordKind.CHECKPOINT, ""),)))
    held = await threads.snapshot("s", 0)
    assert held is not None
    return view.state, [each.key for each in view.records], [each.id for each in held.records]


async def test_acknowledged_appends_outlive_a_kill_at_any_time(tmp_path: Path) -> None:
    """What was acknowledged is there, in order, once; at most one more message is."""
    await _kill_appenders(tmp_path, rounds=4)


@pytest.mark.campaign
@pytest.mark.timeout(1_800)
async def test_acknowledged_appends_outlive_500_kills(tmp_path: Path) -> None:
    """The long form."""
    await _kill_appenders(tmp_path, rounds=500)


async def _kill_appenders(place: Path, *, rounds: int) -> None:
    chance = random.Random(123)
    for number in range(rounds):
        directory = place / str(number // 20)
        if not directory.exists():
            await opened(FileThreads(Documents(directory)), "t")
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


async def test_a_scan_removes_warm_threads_that_have_expired(tmp_path: Path) -> None:
    """Nobody asks for them again, so nobody else would; the session in the same document stays."""
    now = [1_000.0]
    documents = Documents(tmp_path)
    threads, sessions = FileThreads(documents, clock=lambda: now[0]), FileSessions(documents)
    for name in ("gone", "kept"):
        header = await opened(threads, name)
        await threads.evict(name, EPOCH, all_of(header), warm_ttl=60)
    await sessions.commit(a_change("kept"))
    assert sorted([name async for name in threads.scan()]) == ["gone", "kept"]
    now[0] += 60
    assert [name async for name in threads.scan()] == []
    assert files(tmp_path) == ["kept.helix", "kept.lock"]
    assert [name async for name in sessions.scan()] == ["kept"]


async def test_a_damaged_session_is_left_out_of_lists_and_told_to_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One bad file does not take the list of all others away, and nobody has to guess that it is there."""
    sessions = FileSessions(Documents(tmp_path))
    for name in ("a", "b"):
        await sessions.commit(a_change(name))
    (tmp_path / "a.helix").write_bytes(b"")
    page = await sessions.list_sessions(SessionQuery())
    assert [each.session_id for each in page.sessions] == ["b"]
    assert "session 'a' is left out" in caplog.text
    assert [name async for name in sessions.scan()] == ["a", "b"]
    with pytest.raises(StoreCorruptError):
        await sessions.view("a")


async def test_a_callers_state_is_not_the_stores(tmp_path: Path) -> None:
    """What a caller does to a state after it was committed changes no list."""
    sessions = FileSessions(Documents(tmp_path))
    row = a_row("s", metadata={"k": "v"})
    await sessions.commit(a_change("s", row=row))
    row.state.metadata["k"] = "changed"
    await sessions.commit(a_change("s", 1, row=None))
    assert (await sessions.list_sessions(SessionQuery(metadata={"k": "v"}))).total == 1
