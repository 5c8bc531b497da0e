"""Documents on files: names, damage, disks that fail, locks that others hold."""

import asyncio
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from helix_temporal.errors import (
    HelixError,
    InvalidIdError,
    StoreCorruptError,
    StoreUnavailableError,
    UnsupportedFormatError,
    UnsupportedServerError,
)
from helix_temporal.stores.file import FileBackend
from helix_temporal.stores.file._documents import DocumentChange, Documents
from helix_temporal.stores.file._format import (
    Part,
    decode_document,
    encode_document,
    id_of,
    name_of,
)
from helix_temporal.testing.builders import opened
from helix_temporal.testing.contracts._hot_life import HOSTILE_IDS
from tests.unit.stores._file_processes import output, start


async def put(documents: Documents, body: bytes, document_id: str = "id") -> None:
    """Write one document."""
    await documents.change(document_id, lambda _: DocumentChange(None, {"part": Part({"n": 1}, body)}))


async def body_of(documents: Documents, document_id: str = "id") -> bytes | None:
    """Its body, None if it is not there."""
    part = (await documents.read(document_id)).get("part")
    return None if part is None else part.body


def files(directory: Path) -> list[str]:
    """Names of all files there."""
    return sorted(path.name for path in directory.iterdir())


# ---- names


@pytest.mark.parametrize("hostile", HOSTILE_IDS)
def test_a_name_is_one_legal_path_segment(hostile: str) -> None:
    """No id climbs, hides or overflows, with the longest suffix on a file system of 255 bytes."""
    name = name_of(hostile)
    assert "/" not in name
    assert name[0] not in ".~" or name[0] == "~"
    assert len(name) <= 160
    assert id_of(name) in {hostile, None}


def test_names_differ_where_case_is_folded() -> None:
    """``ADMIN`` is not ``admin``, also on a Mac."""
    assert len({name_of(each).casefold() for each in HOSTILE_IDS}) == len(HOSTILE_IDS)


async def test_another_id_with_the_same_name_is_refused(tmp_path: Path) -> None:
    """Two long ids could share a hashed name; neither is ever given the other's session."""
    documents = Documents(tmp_path)
    await put(documents, b"of id")
    shutil.copy(tmp_path / "id.helix", tmp_path / "other.helix")
    with pytest.raises(InvalidIdError, match="another id"):
        await documents.read("other")
    with pytest.raises(InvalidIdError, match="another id"):
        await put(documents, b"mine", "other")


# ---- a directory that is not there


async def test_nothing_is_made_by_reading(tmp_path: Path) -> None:
    """A typing error in a setting leaves no trace."""
    documents = Documents(tmp_path / "a" / "b")
    assert await documents.read("id") == {}
    assert [listed async for listed in documents.entries()] == []
    assert await documents.change("id", lambda _: DocumentChange("unchanged")) == "unchanged"
    assert files(tmp_path) == []


async def test_the_first_write_makes_the_directory_for_its_owner_alone(tmp_path: Path) -> None:
    """Conversations are private."""
    documents = Documents(tmp_path / "a" / "b")
    await put(documents, b"x")
    modes = [(tmp_path / path).stat().st_mode & 0o777 for path in ("a/b", "a/b/id.helix")]
    assert modes == [0o700, 0o600]


# ---- damage


def test_each_flipped_bit_and_each_cut_is_detected() -> None:
    """Bit rot is never taken for a conversation."""
    parts = {"thread": Part({"n": 1}, b"some records"), "session": Part({}, b"a state")}
    whole = b"".join(encode_document("id", parts))
    heading, decoded = decode_document(whole, "it")
    assert (heading.id, decoded["thread"].body, decoded["session"].body) == (
        "id",
        b"some records",
        b"a state",
    )
    flips = [_flipped(whole, at) for at in range(len(whole) * 8)]
    cuts = [whole[:size] for size in range(len(whole))]
    for damaged in (*flips, *cuts, whole + b"\0"):
        with pytest.raises((StoreCorruptError, UnsupportedFormatError)):
            decode_document(damaged, "it")


def _flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


async def test_a_damaged_document_is_named_and_left_alone(tmp_path: Path) -> None:
    """An operator can repair or restore it; nobody writes over what is left."""
    await put(Documents(tmp_path), b"x" * 100)
    documents = Documents(tmp_path)
    path = tmp_path / "id.helix"
    damaged = path.read_bytes()[:-1]
    path.write_bytes(damaged)
    with pytest.raises(StoreCorruptError, match=r"'id\.helix'"):
        await documents.read("id")
    with pytest.raises(StoreCorruptError, match="restore it"):
        await put(documents, b"new")
    assert path.read_bytes() == damaged


async def test_a_listing_names_damaged_documents_and_goes_on(tmp_path: Path) -> None:
    """One bad sector does not hide all other sessions."""
    documents = Documents(tmp_path)
    for each in ("A/1", "b", "c"):
        await put(documents, b"x", each)
    (tmp_path / f"{name_of('A/1')}.helix").write_bytes(b"no document")
    found = {listed.id: listed.problem async for listed in documents.entries()}
    assert isinstance(found.pop("A/1"), StoreCorruptError)
    assert found == {"b": None, "c": None}


async def test_a_damaged_thread_is_seen_by_the_scan(tmp_path: Path) -> None:
    """The janitor's report tells what nobody would open."""
    backend = FileBackend(tmp_path)
    await opened(backend.threads, "t")
    (tmp_path / "sessions" / "t.helix").write_bytes(b"")
    assert [thread_id async for thread_id in backend.threads.scan()] == ["t"]
    with pytest.raises(StoreCorruptError):
        await backend.threads.header("t")


async def test_a_document_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    """After a downgrade nothing is misread."""
    (tmp_path / "id.helix").write_bytes(b"helix-document 2 whatever\n")
    with pytest.raises(UnsupportedFormatError, match="upgrade"):
        await Documents(tmp_path).read("id")


# ---- other files


async def test_foreign_files_are_ignored(tmp_path: Path) -> None:
    """Editors, backups and file managers leave things."""
    documents = Documents(tmp_path)
    await put(documents, b"x")
    for name in ("notes.txt", ".DS_Store", "id.helix~", "x.json"):
        (tmp_path / name).write_text("not ours")
    assert [listed.id async for listed in documents.entries()] == ["id"]
    assert {"notes.txt", ".DS_Store", "id.helix~", "x.json"} < set(files(tmp_path))


async def test_what_a_killed_writer_left_is_swept_but_not_what_a_living_one_writes(tmp_path: Path) -> None:
    """Leftovers don't fill the disk, and a listing disturbs nobody."""
    documents = Documents(tmp_path)
    (tmp_path / "dead.tmp").write_bytes(b"half")
    (tmp_path / "dead.lock").write_bytes(b"")
    (tmp_path / "id.tmp").write_bytes(b"half")
    holder = await start("hold", tmp_path)
    assert holder.stdout is not None
    assert await holder.stdout.readline() == b"held\n"
    assert [listed async for listed in documents.entries()] == []
    assert files(tmp_path) == ["id.lock", "id.tmp"]
    await output(holder)
    assert [listed async for listed in documents.entries()] == []
    assert files(tmp_path) == []


async def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    """Nobody makes us read or write elsewhere."""
    (tmp_path / "elsewhere").write_bytes(b"private")
    (tmp_path / "id.helix").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsupportedServerError, match="ELOOP"):
        await Documents(tmp_path).read("id")


async def test_a_file_where_the_directory_belongs_is_refused(tmp_path: Path) -> None:
    """A wrong setting is a permanent error, not one to retry for five minutes."""
    (tmp_path / "data").write_text("not ours")
    documents = Documents(tmp_path / "data")
    with pytest.raises(UnsupportedServerError, match="ENOTDIR"):
        await documents.read("id")
    with pytest.raises(UnsupportedServerError):
        await documents.check()


# ---- disks


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("step", ["locked", "created", "written", "synced"])
async def test_a_failing_disk_is_passing_and_changes_nothing(tmp_path: Path, step: str, code: int) -> None:
    """An operator makes room, then the same call succeeds."""
    await put(Documents(tmp_path), b"before")
    failing = Documents(tmp_path, after=_failing_at(step, code))
    with pytest.raises(StoreUnavailableError, match=errno.errorcode[code]):
        await put(failing, b"after")
    assert await body_of(failing) == b"before"
    assert files(tmp_path) == ["id.helix", "id.lock"]
    await put(Documents(tmp_path), b"after")
    assert await body_of(failing) == b"after"


def _failing_at(step: str, code: int) -> Callable[[str], None]:
    def after(done: str) -> None:
        if done == step:
            raise OSError(code, os.strerror(code))

    return after


async def test_what_is_not_known_to_be_on_the_disk_is_not_acknowledged(tmp_path: Path) -> None:
    """The new name is there, yet a power cut could still take it back: a reader makes sure first."""
    await put(Documents(tmp_path), b"before")
    failing = Documents(tmp_path, after=_failing_at("renamed", errno.EIO))
    with pytest.raises(StoreUnavailableError):
        await put(failing, b"after")
    with pytest.raises(StoreUnavailableError):
        await Documents(tmp_path, after=_failing_at("assured", errno.EIO)).read("id")
    assert await body_of(Documents(tmp_path)) == b"after"


async def test_file_and_names_are_synced_before_a_write_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was acknowledged survives a power cut, its name and its directory included."""
    synced: list[int] = []
    sync = os.fsync

    def record(handle: int) -> None:
        synced.append(os.fstat(handle).st_ino)
        sync(handle)

    data = tmp_path / "data"
    steps: list[str] = []
    monkeypatch.setattr(os, "fsync", record)
    await put(Documents(data, after=steps.append), b"x")
    paths = (tmp_path, data / "id.helix", data)
    assert [each for each in synced if each != data.stat().st_ino or each == synced[-1]][-3:] == [
        path.stat().st_ino for path in paths
    ]
    assert steps[-6:] == ["locked", "created", "written", "synced", "renamed", "settled"]


async def test_who_may_only_read_reads_and_is_told_so_at_a_write(open_directory: Path) -> None:
    """A disk mounted read-only, or another account's: permanent, and the message says what to look at."""
    data = open_directory / "data"
    await put(Documents(data), b"old")
    data.chmod(0o555)
    (data / "id.helix").chmod(0o444)
    (data / "id.tmp").write_bytes(b"left")
    written = "".join(await output(await start("without_rights", data)))
    assert written.startswith("UnsupportedServerError: ")
    assert "EACCES" in written
    assert written.endswith("oldid")


async def test_a_usable_directory_passes_the_check_and_is_empty_afterwards(tmp_path: Path) -> None:
    """The start-up check leaves nothing."""
    documents = Documents(tmp_path / "data")
    await documents.check()
    assert files(tmp_path / "data") == []


# ---- locks and cancels


async def test_a_lock_that_others_hold_is_waited_for(tmp_path: Path) -> None:
    """Two processes want the same session for a moment."""
    documents = Documents(tmp_path, patience=60)
    await put(documents, b"before")
    holder = await start("hold", tmp_path)
    assert holder.stdout is not None
    await holder.stdout.readline()
    waiting = asyncio.create_task(put(documents, b"after"))
    await asyncio.sleep(0.05)
    assert (waiting.done(), await body_of(documents)) == (False, b"before")
    await output(holder)
    await waiting
    assert await body_of(documents) == b"after"


async def test_a_lock_that_is_never_given_back_is_a_passing_error(tmp_path: Path) -> None:
    """A stopped process does not hang the worker for ever."""
    documents = Documents(tmp_path, patience=0.05)
    await put(documents, b"before")
    holder = await start("hold", tmp_path)
    assert holder.stdout is not None
    await holder.stdout.readline()
    writing = (put(documents, each) for each in (b"1", b"2"))
    outcomes = await asyncio.gather(*writing, return_exceptions=True)
    assert [type(each) for each in outcomes] == [StoreUnavailableError] * 2
    assert "locked by others" in str(outcomes[0])
    await output(holder)
    await put(documents, b"after")


async def test_a_cancelled_write_has_ended_and_holds_nothing(tmp_path: Path) -> None:
    """A cancelled activity leaves a whole document, and no lock in anybody's way."""
    steps: list[str] = []
    locked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def after(step: str) -> None:
        steps.append(step)
        loop.call_soon_threadsafe(locked.set)

    documents = Documents(tmp_path, after=after)
    writing = asyncio.create_task(put(documents, b"x" * (1 << 20)))
    await locked.wait()
    writing.cancel()
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    done = list(steps)
    await put(Documents(tmp_path, patience=0.001), b"next")
    assert steps == done


async def test_a_cancelled_waiter_leaves_the_line(tmp_path: Path) -> None:
    """Those behind it get their turn."""
    documents = Documents(tmp_path, patience=60)
    holder = await start("hold", tmp_path)
    assert holder.stdout is not None
    await holder.stdout.readline()
    first, second, third = (asyncio.create_task(put(documents, each)) for each in (b"1", b"2", b"3"))
    await asyncio.sleep(0.05)
    first.cancel()
    second.cancel()
    await output(holder)
    await third
    outcomes = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(each) for each in outcomes] == [asyncio.CancelledError] * 2
    assert await body_of(documents) == b"3"


async def test_what_decides_may_refuse(tmp_path: Path) -> None:
    """A conflict is the caller's to handle, and changes nothing."""
    documents = Documents(tmp_path)
    await put(documents, b"before")

    def refuse(_: object) -> DocumentChange[None]:
        raise HelixError("no")

    with pytest.raises(HelixError, match="no"):
        await documents.change("id", refuse)
    assert await body_of(documents) == b"before"


async def test_the_cache_never_gives_what_is_no_longer_there(tmp_path: Path) -> None:
    """Also where another process writes a document of the same size within one tick of the clock."""
    mine, theirs = Documents(tmp_path), Documents(tmp_path)
    for round_ in range(50):
        await put(theirs, b"%05d" % round_)
        assert await body_of(mine) == b"%05d" % round_
