"""The counter of steps, by what became of their archiving."""

import pytest
from temporalio import activity
from temporalio.runtime import MetricBuffer, Runtime, TelemetryConfig
from temporalio.testing import ActivityEnvironment

from helix_temporal.activities.step_facts import count_step
from helix_temporal.stores.protocols.threads import FlushReceipt, FlushStatus
from helix_temporal.telemetry.metrics import STEPS, listen_with

OUTCOMES = {
    "archived": FlushReceipt(FlushStatus.ARCHIVED),
    "failed": FlushReceipt(FlushStatus.UNAVAILABLE),
    "not_tried": FlushReceipt(FlushStatus.UNAVAILABLE, tried=False),
}


@activity.defn
def count(receipt: FlushReceipt) -> None:
    """As the step does it."""
    count_step(receipt)


@pytest.fixture(scope="module")
def buffer() -> MetricBuffer:
    return MetricBuffer(1000)


@pytest.fixture(scope="module")
def runtime(buffer: MetricBuffer) -> Runtime:
    made = Runtime(telemetry=TelemetryConfig(metrics=buffer))
    listen_with(made.metric_meter)
    return made


def counted(runtime: Runtime, buffer: MetricBuffer, receipt: FlushReceipt) -> list[tuple[object, object]]:
    """What the runtime's meter has counted of one step."""
    environment = ActivityEnvironment()
    environment.metric_meter = runtime.metric_meter
    environment.run(count, receipt)
    updates = [each for each in buffer.retrieve_updates() if each.metric.name == STEPS.name]
    return [(each.value, each.attributes["outcome"]) for each in updates]


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_step_is_counted_by_what_became_of_it(runtime: Runtime, buffer: MetricBuffer, outcome: str) -> None:
    """A board shows an archive that falls behind before a limit is reached."""
    assert counted(runtime, buffer, OUTCOMES[outcome]) == [(1, outcome)]


def test_without_a_cold_tier_nothing_is_counted(runtime: Runtime, buffer: MetricBuffer) -> None:
    """Nothing was to be archived."""
    assert counted(runtime, buffer, FlushReceipt(FlushStatus.NO_COLD_TIER)) == []
