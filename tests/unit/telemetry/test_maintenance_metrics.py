"""What maintenance records: above all of a sweep that cannot archive."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from temporalio.activity import ActivityCancellationDetails
from temporalio.exceptions import ApplicationError
from temporalio.runtime import MetricBuffer, Runtime, TelemetryConfig
from temporalio.testing import ActivityEnvironment

from helix_temporal.activities.maintenance import MaintenanceActivities
from helix_temporal.coldtier.archive import UNANSWERED_WRITES
from helix_temporal.errors import HelixError, StoreCorruptError, StoreUnavailableError
from helix_temporal.models.maintenance import SweepInput
from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.stores.memory.backend import MemoryBackend
from helix_temporal.stores.protocols.hot import HotTier, StepAppend
from helix_temporal.stores.protocols.threads import FlushReceipt, FlushStatus, FlushThread, OpenThread
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.telemetry import metrics
from helix_temporal.testing.builders import a_message
from helix_temporal.testing.faults import BlobFault
from helix_temporal.testing.faulty_hot import Fault, FaultyHot
from tests.unit.coldtier._tiers import Tiers


class _Archive:
    """Archives nothing but what it is told to."""

    archives = True

    def __init__(self, takes: set[str], error: HelixError) -> None:
        self._takes, self._error = takes, error

    async def flush(self, request: FlushThread) -> FlushReceipt:
        if request.thread_id not in self._takes:
            raise self._error
        return FlushReceipt(FlushStatus.ARCHIVED, puts=1)


async def hot_threads(count: int) -> HotTier:
    """So many threads of one message each."""
    hot: HotTier = MemoryBackend().threads
    threads = HotThreads(hot)
    for number in range(count):
        opened = await threads.open(OpenThread(f"t{number}", 1, "me"))
        assert opened.header.head == EMPTY
        await threads.append(StepAppend(f"t{number}", 1, EMPTY, (a_message("hello"),)))
    return hot


AWAY = StoreUnavailableError("the archive is away")


class Attempt:
    """One attempt of a sweep, and what it records, by name and schedule."""

    def __init__(self, hot: HotTier, threads: Any) -> None:
        self._buffer = MetricBuffer(1000)
        runtime = Runtime(telemetry=TelemetryConfig(metrics=self._buffer))
        metrics.listen_with(runtime.metric_meter)
        self.environment = ActivityEnvironment()
        self.environment.metric_meter = runtime.metric_meter
        self._sweeper: Any = MaintenanceActivities(hot, threads, None)

    async def run(self) -> dict[tuple[str, str], float]:
        """It may raise, or be cancelled."""
        run: Callable[..., Any] = self.environment.run
        with contextlib.suppress(ApplicationError, asyncio.CancelledError):
            await run(self._sweeper.sweep, SweepInput())
        return {
            (each.metric.name, str(each.attributes.get("schedule", ""))): each.value
            for each in self._buffer.retrieve_updates()
        }


async def sweep(hot: HotTier, takes: set[str], error: HelixError = AWAY) -> dict[tuple[str, str], float]:
    """What one attempt records; it may raise."""
    return await Attempt(hot, _Archive(takes, error)).run()


async def tiers_that_refuse_writes(count: int) -> Tiers:
    """So many threads with something to archive, and an archive that answers reads alone."""
    tiers = Tiers()
    for number in range(count):
        await (await tiers.author(f"t{number}")).turn()
    tiers.blobs.plan = lambda call: BlobFault.ERROR_BEFORE if call.method == "put" else None
    tiers.blobs.forget()
    return tiers


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is away is asked again at once."""
    monkeypatch.setattr("helix_temporal._retries.retry_pause", lambda *_, **__: 0.0)


async def test_what_is_not_archived_is_told() -> None:
    """That, and as old as that, is lost if the hot tier dies now."""
    told = await sweep(await hot_threads(3), takes={"t0", "t2"})
    assert told["helix_archive_unarchived_bytes", ""] > 0
    assert 0 <= told["helix_archive_unarchived_age_seconds", ""] < 60
    assert abs(time.time() - told["helix_archive_unarchived_timestamp_seconds", ""]) < 60
    assert told["helix_maintenance_seen", "sweep"] == 3
    assert told["helix_maintenance_done", "sweep"] == 2
    assert told["helix_maintenance_failures", "sweep"] == 1
    assert told["helix_maintenance_last_success_timestamp_seconds", "sweep"] > 0


async def test_a_sweep_that_fails_tells_it_all_the_same() -> None:
    """An archive that is away fails the sweep: just then the alert must come."""
    told = await sweep(await hot_threads(20), takes=set())
    one = (await sweep(await hot_threads(1), takes=set()))["helix_archive_unarchived_bytes", ""]
    assert told["helix_archive_unarchived_bytes", ""] >= 16 * one > 0
    assert told["helix_archive_unarchived_timestamp_seconds", ""] > 0
    assert told["helix_maintenance_failures", "sweep"] == 1
    assert ("helix_maintenance_last_success_timestamp_seconds", "sweep") not in told


@pytest.mark.parametrize("at_rest", [0, 5])
async def test_a_sweep_for_which_the_archive_answered_nothing_is_no_good_one(at_rest: int) -> None:
    """Few threads are enough, whatever else is hot and archived already."""
    hot = await hot_threads(3 + at_rest)
    await sweep(hot, takes={f"t{number}" for number in range(3, 3 + at_rest)})
    told = await sweep(hot, takes=set())
    assert told["helix_maintenance_failures", "sweep"] == 1
    assert told["helix_maintenance_last_end_timestamp_seconds", "sweep"] > 0
    assert told["helix_archive_unarchived_bytes", ""] > 0
    assert ("helix_maintenance_last_success_timestamp_seconds", "sweep") not in told


async def test_a_damaged_thread_alone_makes_no_sweep_a_bad_one() -> None:
    """It is named each time; the job works."""
    told = await sweep(await hot_threads(1), takes=set(), error=StoreCorruptError("damaged"))
    assert told["helix_maintenance_failures", "sweep"] == 1
    assert told["helix_maintenance_last_success_timestamp_seconds", "sweep"] > 0


async def test_after_all_is_archived_nothing_is_left() -> None:
    """A gauge keeps its value until it is set again."""
    told = await sweep(await hot_threads(2), takes={"t0", "t1"})
    assert told["helix_archive_unarchived_bytes", ""] == 0
    assert told["helix_archive_unarchived_age_seconds", ""] == 0


async def test_a_sweep_that_sees_nothing_does_not_say_that_nothing_is_at_risk() -> None:
    """Where the hot tier does not answer either, the last value stands, whichever worker told it."""
    hot = FaultyHot(await hot_threads(1), lambda _call: Fault.ERROR_BEFORE)
    told = await sweep(hot, takes=set())
    assert told["helix_maintenance_failures", "sweep"] == 1
    assert not [name for name, _ in told if name.startswith("helix_archive_unarchived")]


def assert_told_as_failed(told: dict[tuple[str, str], float]) -> None:
    assert told["helix_maintenance_failures", "sweep"] == 1
    assert told["helix_maintenance_last_end_timestamp_seconds", "sweep"] > 0
    assert ("helix_maintenance_last_success_timestamp_seconds", "sweep") not in told
    assert told["helix_archive_unarchived_bytes", ""] > 0
    assert told["helix_archive_unarchived_timestamp_seconds", ""] > 0


async def test_an_archive_that_reads_and_refuses_writes_fails_a_sweep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its disk is full: each thread would else be tried for minutes, and nobody told."""
    monkeypatch.setattr("helix_temporal.coldtier.archive.retry_pause", lambda *_, **__: 0.0)
    tiers = await tiers_that_refuse_writes(2)
    assert_told_as_failed(await Attempt(tiers.hot, tiers.worker()).run())
    assert tiers.blobs.count("put") == 2 * 5 * UNANSWERED_WRITES


async def test_a_sweep_that_writes_nothing_in_time_is_no_good_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such an archive may answer late as well: time that is over is no answer."""
    monkeypatch.setattr("helix_temporal.stores.threads.sweep._THREAD_SECONDS", 0.2)
    tiers = await tiers_that_refuse_writes(2)
    assert_told_as_failed(await Attempt(tiers.hot, tiers.worker()).run())


@pytest.mark.parametrize(
    ("details", "failures"),
    [
        (ActivityCancellationDetails(timed_out=True), 1),
        (ActivityCancellationDetails(not_found=True), 1),
        (ActivityCancellationDetails(worker_shutdown=True), 0),
    ],
    ids=["timed out", "given up", "worker stops"],
)
async def test_a_sweep_that_is_cancelled_tells_what_it_has_seen(
    monkeypatch: pytest.MonkeyPatch, details: ActivityCancellationDetails, failures: int
) -> None:
    """Its time may be over by the archive; where its worker stops another one goes on."""
    archive, begun = _Archive(set(), AWAY), asyncio.Event()

    async def hang(_: FlushThread) -> FlushReceipt:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(archive, "flush", hang)
    attempt = Attempt(await hot_threads(1), archive)
    running = asyncio.create_task(attempt.run())
    await begun.wait()
    attempt.environment.cancel(details)
    told = await running
    assert told["helix_archive_unarchived_bytes", ""] > 0
    assert told.get(("helix_maintenance_failures", "sweep"), 0) == failures
    assert ("helix_maintenance_last_success_timestamp_seconds", "sweep") not in told
