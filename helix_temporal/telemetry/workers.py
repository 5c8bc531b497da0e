"""What a worker gives out from its start on: that it serves, and counters of trouble at 0.

Prometheus' ``rate`` and ``increase`` do not count the value with which a series begins: without the 0 the
first failure of a fresh worker would not be seen.
"""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final
from weakref import WeakKeyDictionary

from temporalio.common import MetricMeter

from helix_temporal.models.ids import SESSION_WORKFLOW
from helix_temporal.telemetry import metrics

_OPEN: Final = "helix.sessions.open"
_STEP: Final = "helix.sessions.run_step"
_SAVE: Final = "helix.sessions.save"
_TURN_ENDS: Final = ((_STEP, "completed"), (_SAVE, "failed"), (_OPEN, "superseded"))
"""Outcomes of turns by which alerts go, each with the activity that counts most of them."""
_TROUBLES: Final = (metrics.FENCED, metrics.HEAD_MOVED, metrics.STORE_UNAVAILABLE)
_ARCHIVE_OUTCOMES: Final = ("archived", "failed", "not_tried")

_serving: WeakKeyDictionary[MetricMeter, Counter[tuple[str, str]]] = WeakKeyDictionary()
"""How many workers serve a namespace's task queue, by the meter of their runtime."""


@contextlib.contextmanager
def tell_worker(meter: MetricMeter, namespace: str, task_queue: str, agents: Iterable[str]) -> Iterator[None]:
    """Give out that a worker serves while the block runs; nothing where nobody takes metrics.

    Args:
        meter: Of the client's runtime.
        namespace: The client's.
        task_queue: The worker's.
        agents: Names of those that it serves; a maintenance worker serves none.
    """
    if meter is MetricMeter.noop:
        yield
        return
    meter_of_queue = meter.with_additional_attributes({"namespace": namespace, "task_queue": task_queue})
    gauge = meter_of_queue.create_gauge(metrics.WORKERS.name, metrics.WORKERS.description)
    count, key = _serving.setdefault(meter, Counter()), (namespace, task_queue)
    _begin_counters(meter_of_queue, tuple(agents))
    count[key] += 1
    gauge.set(count[key])
    try:
        yield
    finally:
        count[key] -= 1
        gauge.set(count[key])


def _begin_counters(meter: MetricMeter, agents: tuple[str, ...]) -> None:
    """Have counters come out at 0, under the labels with which activities will count."""
    if not agents:
        return
    for activity in (_OPEN, _STEP, _SAVE):
        for each in _TROUBLES:
            each.begin(meter, activity_type=activity)
    for outcome in _ARCHIVE_OUTCOMES:
        metrics.STEPS.begin(meter, activity_type=_STEP, outcome=outcome)
    metrics.MESSAGES_LOST.begin(meter, workflow_type=SESSION_WORKFLOW)
    for agent in agents:
        for activity, outcome in _TURN_ENDS:
            metrics.TURNS.begin(meter, activity_type=activity, agent=agent, outcome=outcome)
