"""Locks and usage in files: restarts, clocks that go back, damage."""

from pathlib import Path

import pytest

from helix_temporal.errors import StoreCorruptError
from helix_temporal.models.usage import UsageQuery
from helix_temporal.stores.file import FileBackend, FileLocks
from helix_temporal.stores.file._documents import DocumentChange, Documents
from helix_temporal.stores.file._format import Part
from helix_temporal.testing.contracts._usage_base import some_tokens


def documents_in(directory: Path) -> list[str]:
    """Names of all documents below."""
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*.helix"))


async def test_tokens_grow_over_a_restart_with_an_earlier_clock(data_directory: Path) -> None:
    """The battery of the machine's clock was empty."""
    first = await FileLocks(Documents(data_directory), clock=lambda: 2_000.0).acquire("k", owner="me")
    second = await FileLocks(Documents(data_directory), clock=lambda: 1_000.0).acquire("k", owner="me")
    assert first is not None
    assert second is not None
    assert second.fencing_token == first.fencing_token + 1


async def test_a_lock_is_one_file_of_the_directory(data_directory: Path) -> None:
    """Locks, usage and sessions of one name do not meet."""
    backend = FileBackend(data_directory)
    await backend.locks.acquire("k")
    await backend.usage.record_entry(some_tokens("k"))
    assert documents_in(data_directory) == ["locks/k.helix", "usage/k.helix"]


async def test_a_damaged_lock_is_reported_and_left_alone(data_directory: Path) -> None:
    """Taken anew, it might give out a token that was given out before."""
    locks = FileBackend(data_directory).locks
    await locks.acquire("k")
    path = data_directory / "locks" / "k.helix"
    damaged = path.read_bytes().replace(b"fencing_token", b"fencing_tokan")
    path.write_bytes(damaged)
    with pytest.raises(StoreCorruptError, match=r"k\.helix"):
        await FileBackend(data_directory).locks.acquire("k")
    assert path.read_bytes() == damaged


async def test_a_document_of_something_else_is_no_lock(data_directory: Path) -> None:
    """A directory that is used twice is noticed."""
    documents = Documents(data_directory)
    await documents.change("k", lambda _: DocumentChange(None, {"thread": Part({}, b"")}))
    with pytest.raises(StoreCorruptError, match="no lease"):
        await FileLocks(documents).acquire("k")


async def test_a_query_over_a_damaged_session_is_refused(data_directory: Path) -> None:
    """A sum without it would be too low, and nobody would know."""
    usage = FileBackend(data_directory).usage
    await usage.record_entry(some_tokens("good"))
    await usage.record_entry(some_tokens("bad"))
    path = data_directory / "usage" / "bad.helix"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StoreCorruptError, match="bad"):
        await FileBackend(data_directory).usage.query_usage(UsageQuery())
    assert len(await FileBackend(data_directory).usage.get_entries("good")) == 1
