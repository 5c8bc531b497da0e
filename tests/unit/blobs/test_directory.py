"""What only the directory store has to withstand: crashes, other processes, the disk."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from helix_temporal.blobs import ConditionFailedError
from helix_temporal.blobs.directory import DirectoryBlobs
from helix_temporal.errors import ArchiveAccessError, StoreUnavailableError

INCREMENTS = 40
PROCESSES = 4

COUNT_UP = f"""
import asyncio, sys
from helix_temporal.blobs import ConditionFailedError
from helix_temporal.blobs.directory import DirectoryBlobs

async def count_up(store):
    done = 0
    while done < {INCREMENTS}:
        found = await store.get("counter")
        try:
            await store.put("counter", b"%d" % (int(found.data) + 1), if_match=found.etag)
        except ConditionFailedError:
            continue
        done += 1

asyncio.run(count_up(DirectoryBlobs(sys.argv[1])))
"""


async def test_a_missing_root_is_an_error_and_not_an_empty_archive(tmp_path: Path) -> None:
    """A disk that is not mounted must not look like threads that were never archived."""
    store = DirectoryBlobs(tmp_path / "unmounted")
    with pytest.raises(ArchiveAccessError, match="unmounted"):
        await store.get("key")
    with pytest.raises(ArchiveAccessError, match="unmounted"):
        await store.put("key", b"data")
    with pytest.raises(ArchiveAccessError, match="unmounted"):
        [info async for info in store.list("")]
    assert not (tmp_path / "unmounted").exists()


async def test_conditions_hold_between_processes(tmp_path: Path) -> None:
    """Several workers of one machine share an archive: no increment may vanish."""
    store = DirectoryBlobs(tmp_path)
    await store.put("counter", b"0")
    command = [sys.executable, "-c", COUNT_UP, str(tmp_path)]
    processes = [await asyncio.create_subprocess_exec(*command) for _ in range(PROCESSES)]
    assert [await process.wait() for process in processes] == [0] * PROCESSES
    found = await store.get("counter")
    assert found is not None
    assert int(found.data) == INCREMENTS * PROCESSES


async def test_a_writer_that_died_leaves_no_object_and_no_lock(tmp_path: Path) -> None:
    """A killed worker's half-written file is never seen, and others go on."""
    die_before_replace = (
        "import asyncio, os, pathlib, sys\n"
        "from helix_temporal.blobs.directory import DirectoryBlobs\n"
        "pathlib.Path.replace = lambda *_: os.kill(os.getpid(), 9)\n"
        "asyncio.run(DirectoryBlobs(sys.argv[1]).put('key', b'data'))\n"
    )
    store = DirectoryBlobs(tmp_path)
    await store.put("key", b"before")
    dead = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", die_before_replace, str(tmp_path)])
    assert dead.returncode == -9
    assert [info.key async for info in store.list("")] == ["key"]
    assert await store.put("key", b"after", if_match=(await store.put("key", b"before")))


async def test_files_and_folders_are_synced_before_put_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was acknowledged survives a power cut, its name included."""
    synced: list[int] = []
    sync = os.fsync

    def record(handle: int) -> None:
        synced.append(os.fstat(handle).st_ino)
        sync(handle)

    monkeypatch.setattr(os, "fsync", record)
    await DirectoryBlobs(tmp_path).put("a/b", b"data")
    new_folder, file, name = tmp_path, tmp_path / "a" / "b.blob", tmp_path / "a"
    assert synced == [path.stat().st_ino for path in (new_folder, file, name)]


async def test_a_file_where_a_folder_belongs_is_an_access_error(tmp_path: Path) -> None:
    """Somebody else's files in the archive are named, not overwritten."""
    (tmp_path / "a").write_text("not ours")
    store = DirectoryBlobs(tmp_path)
    with pytest.raises(ArchiveAccessError, match="'a/b'"):
        await store.put("a/b", b"data")
    assert (tmp_path / "a").read_text() == "not ours"


async def test_a_full_disk_is_passing_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ENOSPC is repaired by an operator, then the same call succeeds."""
    store = DirectoryBlobs(tmp_path)
    etag = await store.put("key", b"before")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StoreUnavailableError, match="ENOSPC"):
            await store.put("key", b"after", if_match=etag)
    assert not list((tmp_path / ".helix").glob("*.part"))
    assert await store.put("key", b"after", if_match=etag)


async def test_a_cancelled_put_is_whole_or_not_there(tmp_path: Path) -> None:
    """Cancelling a caller does not tear what its thread writes."""
    store = DirectoryBlobs(tmp_path)
    writing = asyncio.create_task(store.put("key", b"x" * (1 << 20)))
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    try:
        await store.put("key", b"second", create=True)
    except ConditionFailedError:
        found = await store.get("key")
        assert found is not None
        assert len(found.data) == 1 << 20
