"""A pass over all hot threads where the archive does not answer for some, or for none."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from helix_temporal import Backends, Settings
from helix_temporal.activities.maintenance import MaintenanceActivities
from helix_temporal.errors import StoreCorruptError, StoreUnavailableError
from helix_temporal.models.maintenance import NAMED, SweepInput
from helix_temporal.models.messages import Message
from helix_temporal.stores.protocols.hot import scan_threads
from helix_temporal.stores.protocols.threads import FlushReceipt, FlushThread, Progress, no_progress
from helix_temporal.stores.threads import sweep, visits
from helix_temporal.stores.threads.hot_only import HotThreads

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
    assert [each.thread_id async for each in scan_threads(backends.hot)] == ["s0"]
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
    assert len(tried) <= visits.GIVES_UP_AFTER + 8
    assert len([each.thread_id async for each in scan_threads(backends.hot)]) == COUNT


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


async def test_the_log_says_why_a_thread_was_not_archived(
    backends: Backends, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The result names the thread alone, and whoever repairs it wants to know what is wrong."""
    refuse(backends, monkeypatch, lambda thread_id, _: thread_id == "s0")
    await backends.sweep()
    told = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert told == [
        "thread 's0' was not archived by this pass: StoreUnavailableError: S3 refused put: 503 SlowDown"
    ]


async def test_the_log_names_some_threads_where_many_are_not_archived(
    backends: Backends, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A pass comes each minute: ten thousand damaged threads must not fill the disk."""

    async def find_damage(thread_id: str) -> Any:
        raise StoreCorruptError(f"thread {thread_id!r}: its header is damaged")

    monkeypatch.setattr(backends.hot, "read_header", find_damage)
    assert (await backends.sweep()).failures == COUNT
    told = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(told) == NAMED + 1
    assert told[-1] == f"more threads were not archived by this pass: the log names {NAMED}"


async def test_a_bug_is_named_by_its_type_beside_the_thread(
    backends: Backends, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What any code raises may quote what it was given: its text stands in the traceback alone."""

    async def fail(request: FlushThread, progress: Progress = no_progress) -> FlushReceipt:
        raise ValueError("got 'hi'")

    monkeypatch.setattr(backends.threads, "flush", fail)
    await backends.sweep()
    assert "thread 's0' was not archived by this pass: ValueError" in [
        each.getMessage() for each in caplog.records
    ]
    assert "fail" in caplog.text


async def test_what_has_not_changed_is_passed_over(
    backends: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It costs no look at the archive; one that has changed does."""
    await backends.sweep()
    tried = refuse(backends, monkeypatch, lambda *_: False)
    found = await backends.sweep()
    assert (found.seen, found.clean, tried) == (COUNT, COUNT, {})
    await backends.sessions.append_messages("s7", [Message(id="m2", role="user", content="more")])
    found = await backends.sweep()
    assert (found.seen, found.clean, found.archived, tried) == (COUNT, COUNT - 1, 1, {"s7": 1})


async def test_what_has_not_changed_is_dropped_all_the_same(backends: Backends) -> None:
    """A pass that drops looks at all threads."""
    await backends.sweep()
    found = await backends.sweep(evict=True)
    assert (found.seen, found.clean) == (COUNT, COUNT)
    assert [each async for each in scan_threads(backends.hot)] == []


async def test_a_thread_that_could_not_be_archived_is_tried_by_the_next_pass(
    backends: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not taken for one that has not changed."""
    refuse(backends, monkeypatch, lambda thread_id, times: thread_id == "s0" and times <= 5)
    assert (await backends.sweep()).failed == ("s0",)
    found = await backends.sweep()
    assert (found.archived, found.clean) == (1, COUNT - 1)


async def test_a_thread_that_takes_too_long_is_put_off(
    backends: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those behind it are archived meanwhile, and afterwards."""
    monkeypatch.setattr(sweep, "_THREAD_SECONDS", 3.0)
    flush = backends.threads.flush

    async def flush_or_hang(request: FlushThread, progress: Progress = no_progress) -> FlushReceipt:
        if request.thread_id == "s0":
            await asyncio.Event().wait()
        return await flush(request, progress)

    monkeypatch.setattr(backends.threads, "flush", flush_or_hang)
    found = await backends.sweep()
    assert (found.archived, found.failed) == (COUNT - 1, ("s0",))


@pytest.mark.parametrize("left", [COUNT, 3], ids=["many", "few"])
async def test_a_pass_in_which_each_thread_takes_too_long_fails(
    backends: Backends, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """As where a store does not answer: it ends soon, and is no good one."""
    await backends.sweep()
    for number in range(left):
        await backends.sessions.append_messages(f"s{number}", [Message(id="m2", role="user", content="more")])
    monkeypatch.setattr(sweep, "_THREAD_SECONDS", 0.1)
    tried = set()

    async def hang(request: FlushThread, progress: Progress = no_progress) -> FlushReceipt:
        tried.add(request.thread_id)
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(backends.threads, "flush", hang)
    with pytest.raises(StoreUnavailableError, match="not done within"):
        await backends.sweep()
    assert len(tried) <= visits.GIVES_UP_AFTER + 8


@pytest.mark.parametrize("evict", [False, True])
async def test_without_an_archive_no_thread_is_read(
    backends: Backends, monkeypatch: pytest.MonkeyPatch, evict: bool
) -> None:
    """The pass comes each minute, and there is nothing that it could do with them."""
    read: list[str] = []

    async def note_read(thread_id: str) -> None:
        read.append(thread_id)

    monkeypatch.setattr(backends.hot, "read_header", note_read)
    found = await sweep.sweep_threads(backends.hot, HotThreads(backends.hot), SweepInput(evict=evict))
    assert (found.seen, found.gone, found.failures, read) == (COUNT, COUNT, 0, [])


async def test_an_attempt_goes_on_where_the_one_before_was(
    backends: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its heartbeats say; each page is one."""
    sweeper = MaintenanceActivities(backends.hot, backends.threads, None)
    beaten: list[tuple[object, ...]] = []
    first = ActivityEnvironment()
    first.on_heartbeat = lambda *details: beaten.append(details)
    request = SweepInput(page=10)
    assert (await first.run(sweeper.sweep, request)).archived == COUNT
    pages = list(dict.fromkeys(cursor for cursor, _ in beaten))
    assert len(pages) == COUNT // 10
    tried = refuse(backends, monkeypatch, lambda *_: False)
    for number in range(COUNT):
        await backends.sessions.append_messages(f"s{number}", [Message(id="m2", role="user", content="more")])
    second = ActivityEnvironment()
    at, done = next(details for details in beaten if details[0] == pages[1])
    second.info = replace(second.info, heartbeat_details=[at, done], attempt=2)
    found = await second.run(sweeper.sweep, request)
    assert (found.seen, found.archived, len(tried)) == (COUNT, COUNT, COUNT - 20)
