"""From settings to stores: what is picked, and what a setting changes."""

from datetime import timedelta
from pathlib import Path

import pytest

from helix_temporal.backends import Backends
from helix_temporal.blobs.directory import DirectoryBlobs
from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.coldtier import TieredThreads
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings
from helix_temporal.stores.alone import HotThreads
from helix_temporal.stores.memory import MemoryPayloads, MemoryThreads
from helix_temporal.stores.protocols.hot import StepAppend
from helix_temporal.stores.protocols.threads import OpenThread, ReadPage
from helix_temporal.testing.builders import a_message, an_answer
from tests.unit.coldtier import _v1_files


@pytest.fixture
def cold_directory(tmp_path: Path) -> Path:
    """Where threads are archived."""
    root = tmp_path / "cold"
    root.mkdir()
    return root


def test_without_servers_threads_are_in_memory() -> None:
    """The README's first snippet needs no Redis."""
    backends = Backends(Settings())
    assert isinstance(backends.threads, HotThreads)
    assert backends.tiered is None


async def test_a_data_directory_keeps_threads_and_payloads_without_a_server(tmp_path: Path) -> None:
    """What one process was told, the next one knows."""
    settings = Settings(data_directory=tmp_path / "data")
    first, second = Backends(settings), Backends(settings)
    opened = await first.threads.open(OpenThread("t", 10, "owner"))
    await first.threads.append(StepAppend("t", 10, opened.header.head, (a_message("hi"),)))
    ref = await first.payloads.put("t", 0, "call", "a large result")
    await first.check()
    await first.close()
    page = await second.threads.read(ReadPage("t", committed_only=False))
    assert [record.body for record in page.records] == [b"hi"]
    assert await second.payloads.get("t", ref) == "a large result"


def test_a_directory_is_a_cold_tier(cold_directory: Path) -> None:
    """One machine needs no S3."""
    backends = Backends(Settings(cold_directory=cold_directory))
    assert isinstance(backends.threads, TieredThreads)


def test_stores_from_elsewhere_are_used() -> None:
    """A new backend needs no change in this package."""
    hot, blobs = MemoryThreads(), MemoryBlobs()
    backends = Backends(Settings(), hot=(hot, MemoryPayloads()), blobs=blobs)
    assert (backends.hot, backends.blobs) == (hot, blobs)
    assert HelixPlugin(backends=backends).backends is backends


async def test_ended_threads_expire_only_if_that_was_agreed() -> None:
    """Without a cold tier the hot record is all there is."""
    kept, agreed = Backends(Settings()), Backends(Settings(expire_unarchived_after=timedelta(hours=1)))
    outcomes = []
    for backends in (kept, agreed):
        opened = await backends.threads.open(OpenThread("t", 10, "owner"))
        step = StepAppend("t", 10, opened.header.head, (a_message("hi"),), an_answer("hello"), commits=True)
        await backends.threads.append(step)
        outcomes.append(str(await backends.threads.evict("t", 10)))
    assert outcomes == ["no_cold_tier", "kept_warm"]


async def test_version_1_archives_are_read_once_they_are_switched_on(cold_directory: Path) -> None:
    """Moving from zeitlich is a setting."""
    rows = [_v1_files.anthropic(number) for number in range(4)]
    await DirectoryBlobs(cold_directory).put(_v1_files.KEY, _v1_files.snapshot(rows))
    backends = Backends(Settings(cold_directory=cold_directory, read_v1=True))
    opened = await backends.threads.open(OpenThread("t", 10, "owner"))
    page = await backends.threads.read(ReadPage("t"))
    assert opened.header.head.position == 4
    assert [record.id for record in page.records] == ["m-0", "m-1", "m-2", "m-3"]
