"""A pass over all hot threads where the archive does not answer for some, or for none."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from helix_temporal import Backends, Settings
from helix_temporal.errors import StoreCorruptError, StoreUnavailableError
from helix_temporal.models.messages import Message
from helix_temporal.stores.protocols.threads import FlushReceipt, FlushThread, Progress, no_progress
from helix_temporal.stores.threads import sweep

COUNT = 40


@pytest.fixture
async def backends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Backends]:
    """Forty sessions that were never archived."""
    monkeypatch.setattr("helix_temporal._retries.retry_pause", lambda *_, **__: 0.0)
    made = Backends(Settings.from_env({"HELIX_COLD_DIRECTORY": str(tmp_path)}))
    for number in range(COUNT):
        await made.sessions.create_session(f"s{number}")
        await made.sessions.append_messages(f"s{number}", [Message(id="m", role="user", content="hi")])
    yield made
    await made.close()


def refuse(
    backends: Backends, monkeypatch: pytest.MonkeyPatch, is_refused: Callable[[str, int], bool]
) -> dict[str, int]:
    """The archive does not take these threads, by id and by how often they were tried; all tries."""
    tried: dict[str, int] = {}
    flush = backends.threads.flush

    async def flush_or_refuse(request: FlushThread, progress: Progress = no_progress) -> FlushReceipt:
        tried[request.thread_id] = tried.get(request.thread_id, 0) + 1
        if is_refused(request.thread_id, tried[request.thread_id]):
            raise StoreUnavailableError("S3 refused put: 503 SlowDown")
        return await flush(request, progress)

    monkeypatch.setattr(backends.threads, "flush", flush_or_refuse)
    return tried


async def test_a_thread_that_the_archive_refuses_stops_no_other(
    backends: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told, and the others are archived."""
    tried = refuse(backends, monkeypatch, lambda thread_id, _: thread_id == "s0")
    found = await backends.sweep(evict=True)
    assert (found.archived, found.failed, found.failures) == (COUNT - 1, ("s0",), 1)
    assert [each async for each in backends.hot.scan()] == ["s0"]
    assert tried["s0"] == 5


async def test_a_thread_that_is_refused_for_a_moment_is_archived(
    backends: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is tried several times."""
    refuse(backends, monkeypatch, lambda _, times: times < 3)
    found = await backends.sweep(evict=True)
    assert (found.archived, found.failures) == (COUNT, 0)


async def test_a_pass_ends_where_the_archive_is_away(
    backends: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not ask for each thread again and again."""
    tried = refuse(backends, monkeypatch, lambda *_: True)
    with pytest.raises(StoreUnavailableError, match="SlowDown"):
        await backends.sweep(evict=True)
    assert len(tried) <= sweep._GIVES_UP_AFTER + 8
    assert len([each async for each in backends.hot.scan()]) == COUNT


async def test_a_damaged_thread_stops_no_other(backends: Backends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where nothing of it can be read."""
    read = backends.hot.read_header

    async def read_or_find_damage(thread_id: str) -> Any:
        if thread_id == "s7":
            raise StoreCorruptError("thread 's7': its header is damaged")
        return await read(thread_id)

    monkeypatch.setattr(backends.hot, "read_header", read_or_find_damage)
    found = await backends.sweep(evict=True)
    assert (found.archived, found.failed) == (COUNT - 1, ("s7",))
