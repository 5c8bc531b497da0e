"""What maintenance records: above all of a sweep that cannot archive."""

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.runtime import MetricBuffer, Runtime, TelemetryConfig
from temporalio.testing import ActivityEnvironment

from helix_temporal.activities.maintenance import MaintenanceActivities
from helix_temporal.errors import HelixError, StoreCorruptError, StoreUnavailableError
from helix_temporal.models.maintenance import SweepInput
from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.stores.memory.backend import MemoryBackend
from helix_temporal.stores.protocols.hot import HotTier, StepAppend
from helix_temporal.stores.protocols.threads import FlushReceipt, FlushStatus, FlushThread, OpenThread
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.telemetry import metrics
from helix_temporal.testing.builders import a_message
from helix_temporal.testing.faulty_hot import Fault, FaultyHot


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


async def sweep(hot: HotTier, takes: set[str], error: HelixError = AWAY) -> dict[tuple[str, str], float]:
    """What one attempt records, by name and schedule; it may raise."""
    buffer = MetricBuffer(1000)
    runtime = Runtime(telemetry=TelemetryConfig(metrics=buffer))
    metrics.listen_with(runtime.metric_meter)
    environment = ActivityEnvironment()
    environment.metric_meter = runtime.metric_meter
    sweeper: Any = MaintenanceActivities(hot, _Archive(takes, error), None)  # type: ignore[arg-type]
    run: Callable[..., Any] = environment.run
    with contextlib.suppress(ApplicationError):
        await run(sweeper.sweep, SweepInput())
    return {
        (each.metric.name, str(each.attributes.get("schedule", ""))): each.value
        for each in buffer.retrieve_updates()
    }


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
