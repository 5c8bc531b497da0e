"""What a worker gives out for Prometheus, as it is fetched there."""

from pathlib import Path

import pytest
from temporalio.runtime import MetricBuffer, Runtime, TelemetryConfig
from temporalio.worker import Replayer

from helix_temporal.models.usage import TokenUsageEntry, UsageQuery
from helix_temporal.plugin import HelixPlugin
from helix_temporal.telemetry.metrics import INSTRUMENTS, Instrument
from tests.replay.record import load
from tests.replay.test_replay import HISTORIES
from tests.workflows._metered import Metered, fetch

pytestmark = pytest.mark.asyncio(loop_scope="session")

OUTCOMES = {
    "completed": 9,
    "max_steps": 1,
    "failed": 1,
    "interrupted": 1,
    "aborted": 1,
    "superseded": 1,
    "went_on": 1,
}


@pytest.mark.parametrize("outcome", OUTCOMES)
async def test_each_turn_is_counted_once_by_how_it_ended(metered: Metered, outcome: str) -> None:
    """An alert tells failed turns from those that somebody stopped."""
    assert metered.value("helix_turns_total", outcome=outcome) == OUTCOMES[outcome]


@pytest.mark.parametrize("outcome", OUTCOMES)
async def test_each_turn_has_a_duration(metered: Metered, outcome: str) -> None:
    """Also one that was cut: its run says when it began."""
    assert metered.value("helix_turn_duration_seconds_count", outcome=outcome) == OUTCOMES[outcome]
    assert 0 < metered.value("helix_turn_duration_seconds_sum", outcome=outcome) < 300


@pytest.mark.parametrize("instrument", INSTRUMENTS.values(), ids=lambda each: each.name)
async def test_each_metric_comes_out(metered: Metered, instrument: Instrument) -> None:
    """Under the name that boards and alerts have, and with its labels."""
    plain = instrument.name + instrument.suffix
    found = {each.name: each.labels for each in fetch(metered.address)}
    labels = found.get(plain, found.get(f"{plain}_count"))
    assert labels is not None
    assert set(instrument.labels) <= labels.keys()


@pytest.mark.parametrize("outcome", ["completed", "failed", "superseded"])
async def test_turns_are_counted_where_their_worker_began_with_0(metered: Metered, outcome: str) -> None:
    """A series that began elsewhere would begin with 1, which Prometheus' `rate` does not count."""
    agents = {agent.name for agent in metered.desk.agents()}
    for agent in agents:
        assert len(metered.samples("helix_turns_total", outcome=outcome, agent=agent)) == 1


async def test_a_worker_tells_that_it_serves(metered: Metered) -> None:
    """An alert misses those that have told it and are gone."""
    queue = metered.served.plugin.settings.task_queue
    assert metered.value("helix_workers", task_queue=queue, namespace="default") == 1


async def test_labels_are_bounded(metered: Metered) -> None:
    """An id as a label is a series for each session, which no Prometheus survives."""
    ids = {"session_id", "thread_id", "run_id", "workflow_id", "workflowId", "activity_id"}
    seen = {label for each in fetch(metered.address) for label in each.labels}
    assert not seen & ids
    values = {value for each in fetch(metered.address) for value in each.labels.values()}
    assert not [each for each in values if each.startswith("s-")]


async def test_tokens_are_those_of_the_usage_log(metered: Metered) -> None:
    """What is paid is counted once, however often a step is tried."""
    usage = metered.served.plugin.backends.usage
    entries = (await usage.query_usage(UsageQuery(kinds=("tokens",), limit=200))).items
    paid = sum(each.tokens.prompt for each in entries if isinstance(each, TokenUsageEntry))
    assert metered.value("helix_tokens_total", kind="input") == paid > 0


async def test_the_metrics_of_the_sdk_come_out_beside_them(metered: Metered) -> None:
    """They say whether there are too few workers."""
    names = {each.name for each in fetch(metered.address)}
    assert "temporal_activity_schedule_to_start_latency_seconds_bucket" in names
    assert "temporal_worker_task_slots_available" in names


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: f"{path.parent.name}/{path.stem}")
async def test_a_replay_records_nothing(path: Path) -> None:
    """A session of a month is replayed a hundred times."""
    buffer = MetricBuffer(10_000)
    runtime = Runtime(telemetry=TelemetryConfig(metrics=buffer))
    replayer = Replayer(workflows=[], plugins=[HelixPlugin()], runtime=runtime)
    await replayer.replay_workflow(load(path))
    runtime.metric_meter.create_counter("helix_seen").add(1)
    names = [each.metric.name for each in buffer.retrieve_updates()]
    assert [name for name in names if name.startswith("helix")] == ["helix_seen"]
