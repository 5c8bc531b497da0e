"""What a worker gives out before it has done anything, and when it ends."""

from typing import Any

import pytest
from temporalio.common import MetricMeter
from temporalio.runtime import MetricBuffer, Runtime, TelemetryConfig

from helix_temporal.telemetry import metrics
from helix_temporal.telemetry.workers import tell_worker


@pytest.fixture
def buffer() -> MetricBuffer:
    return MetricBuffer(10_000)


@pytest.fixture
def meter(buffer: MetricBuffer) -> MetricMeter:
    return Runtime(telemetry=TelemetryConfig(metrics=buffer, attach_service_name=False)).metric_meter


@pytest.fixture(autouse=True)
def _fresh_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process records so many names of agents; those of other tests are not counted here."""
    monkeypatch.setattr(metrics, "_values", {})


def values(buffer: MetricBuffer, name: str) -> list[tuple[float, dict[str, Any]]]:
    """What came of one metric."""
    return [
        (each.value, dict(each.attributes)) for each in buffer.retrieve_updates() if each.metric.name == name
    ]


def test_a_worker_serves_until_it_ends(buffer: MetricBuffer, meter: MetricMeter) -> None:
    """Two of one process on one task queue are two, and the first that ends leaves one."""
    queue = {"namespace": "n", "task_queue": "q"}
    with tell_worker(meter, "n", "q", []):
        with tell_worker(meter, "n", "q", []):
            assert values(buffer, "helix_workers") == [(1, queue), (2, queue)]
        assert values(buffer, "helix_workers") == [(1, queue)]
        with tell_worker(meter, "n", "other", []):
            assert values(buffer, "helix_workers") == [(1, queue | {"task_queue": "other"})]
    assert values(buffer, "helix_workers")[-1] == (0, queue)


def test_a_worker_that_fails_serves_no_longer(buffer: MetricBuffer, meter: MetricMeter) -> None:
    with pytest.raises(RuntimeError), tell_worker(meter, "n", "q", []):
        raise RuntimeError
    assert [value for value, _ in values(buffer, "helix_workers")] == [1, 0]


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("helix_messages_lost", {"workflow_type": "helix.session"}),
        ("helix_turns", {"activity_type": "helix.sessions.save", "agent": "main", "outcome": "failed"}),
        ("helix_turns", {"activity_type": "helix.sessions.open", "agent": "main", "outcome": "superseded"}),
        ("helix_store_unavailable", {"activity_type": "helix.sessions.run_step"}),
        ("helix_steps", {"activity_type": "helix.sessions.run_step", "outcome": "failed"}),
    ],
)
def test_trouble_begins_with_0(
    buffer: MetricBuffer, meter: MetricMeter, name: str, labels: dict[str, str]
) -> None:
    """The first failure of a fresh worker is an increase, not the begin of a series."""
    with tell_worker(meter, "n", "q", ["main"]):
        assert (0, {"namespace": "n", "task_queue": "q"} | labels) in values(buffer, name)


def test_a_worker_without_agents_counts_no_turns(buffer: MetricBuffer, meter: MetricMeter) -> None:
    """One of maintenance has no sessions."""
    with tell_worker(meter, "n", "q-maintenance", []):
        assert {each.metric.name for each in buffer.retrieve_updates()} == {"helix_workers"}


def test_where_nobody_takes_metrics_nothing_is_told() -> None:
    with tell_worker(MetricMeter.noop, "n", "q", ["main"]):
        pass
