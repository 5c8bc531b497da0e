"""All metrics of the pack: their names, their labels, and how they are recorded.

They are recorded by activities, through the meter of Temporal's SDK, so that they come out where the SDK's
own metrics do.  Workflow code records one, `MESSAGES_LOST`, by the SDK's meter, which is silent in a replay.
A worker itself tells `WORKERS`, and has counters of trouble come out at 0 (`telemetry.workers`).
Without metrics in the client's runtime a call costs a look at a context variable.

Labels are bounded: names that an application or a model gives are counted as ``other`` once there are
`MOST_VALUES` of them, and no id is a label.  The SDK adds ``namespace``, ``task_queue`` and
``activity_type``.
"""

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary

from temporalio import activity
from temporalio.common import MetricCommon, MetricCounter, MetricMeter

MOST_VALUES: Final = 100
"""Different values of one label in a process; further ones are ``other``."""
OTHER: Final = "other"
WENT_ON: Final = "went_on"
"""Outcome of a turn that waited for people, when a message came instead."""
REFUSED: Final = "refused"
"""Outcome of a turn that did not begin, because too much is not archived and the archive is away."""
_LONGEST: Final = 80
"""Characters of a label's value."""

_values: dict[str, set[str]] = {}


def bound_label(label: str, value: str) -> str:
    """The value as it may be recorded: itself, or ``other`` if it is long or one too many."""
    known = _values.setdefault(label, set())
    if value in known:
        return value
    if not value or len(value) > _LONGEST or len(known) >= MOST_VALUES:
        return OTHER
    known.add(value)
    return value


class _Listening:
    """Whether anybody in this process takes metrics: else recording must cost next to nothing."""

    is_on = False


def listen_with(meter: MetricMeter) -> None:
    """Record from now on, unless this is the meter of a runtime without metrics."""
    _Listening.is_on = _Listening.is_on or meter is not MetricMeter.noop


def find_meter() -> MetricMeter | None:
    """The meter of the activity that runs; None outside of one, and where nobody takes metrics."""
    if not _Listening.is_on or not activity.in_activity():
        return None
    meter = activity.metric_meter()
    return None if meter is MetricMeter.noop else meter


_MOST_KEPT: Final = 10_000
_Instruments = dict[tuple[object, ...], Any]
_kept: WeakKeyDictionary[object, _Instruments] = WeakKeyDictionary()
"""Instruments with their labels, by the client of their worker, which has one runtime.

Making one takes five times as long as recording.
"""


def _kept_instruments() -> _Instruments:
    """Those of the worker whose activity runs; where it has no client, an empty one that is not kept."""
    try:
        client = activity.client()
    except RuntimeError:  # not on the event loop
        return {}
    found = _kept.get(client)
    if found is None:
        found = _kept[client] = {}
    return found


@dataclass(frozen=True, slots=True)
class Instrument:
    """One metric.

    Attributes:
        name: As Prometheus shows it, without ``_total`` and ``_seconds``, which the SDK adds.  Without dots:
            the SDK's endpoint for Prometheus refuses them.
        description: What is counted.
        labels: Their names.
    """

    suffix: ClassVar[str] = ""

    name: str
    description: str
    labels: tuple[str, ...] = ()

    def make(self, meter: MetricMeter) -> MetricCommon:
        """The SDK's instrument."""
        raise NotImplementedError

    def _find(self, labels: dict[str, str]) -> Any:
        """The SDK's instrument for these labels and the activity that runs; None where nobody listens."""
        meter = find_meter()
        if meter is None:
            return None
        info, kept = activity.info(), _kept_instruments()
        key = (self.name, info.namespace, info.task_queue, info.activity_type, *labels.items())
        found = kept.get(key)
        if found is None:
            if len(kept) >= _MOST_KEPT:
                kept.clear()
            bounded = {label: bound_label(label, value) for label, value in labels.items()}
            found = kept[key] = self.make(meter).with_additional_attributes(bounded)
        return found


@dataclass(frozen=True, slots=True)
class Counter(Instrument):
    """Counts."""

    suffix: ClassVar[str] = "_total"

    def make(self, meter: MetricMeter) -> MetricCounter:
        """See `Instrument.make`."""
        return meter.create_counter(self.name, self.description)

    def add(self, value: int = 1, **labels: str) -> None:
        """Count so many; nothing where it is 0."""
        if _Listening.is_on and value > 0 and (counter := self._find(labels)) is not None:
            counter.add(value)

    def begin(self, meter: MetricMeter, **labels: str) -> None:
        """Have it come out at 0 before anything is counted.

        Args:
            meter: The worker's, with its namespace and task queue.
            labels: Of the series, with ``activity_type`` or ``workflow_type``.
        """
        own = {label: bound_label(label, labels[label]) for label in self.labels}
        self.make(meter).with_additional_attributes(labels | own).add(0)


@dataclass(frozen=True, slots=True)
class Duration(Instrument):
    """A histogram of seconds.

    Attributes:
        buckets: Their upper bounds in seconds.
    """

    suffix: ClassVar[str] = "_seconds"
    buckets: tuple[float, ...] = ()

    def make(self, meter: MetricMeter) -> MetricCommon:
        """See `Instrument.make`."""
        return meter.create_histogram_timedelta(self.name, self.description)

    def record(self, seconds: float, **labels: str) -> None:
        """Record what took so long; a clock that went back is 0."""
        if _Listening.is_on and (histogram := self._find(labels)) is not None:
            histogram.record(timedelta(seconds=max(seconds, 0.0)))

    def record_since(self, began: float, **labels: str) -> None:
        """Record what has gone on since ``began`` by `time.monotonic`."""
        if _Listening.is_on:
            self.record(time.monotonic() - began, **labels)


@dataclass(frozen=True, slots=True)
class Gauge(Instrument):
    """A value as it is now; its name says the unit."""

    def make(self, meter: MetricMeter) -> MetricCommon:
        """See `Instrument.make`."""
        return meter.create_gauge_float(self.name, self.description)

    def set(self, value: float, **labels: str) -> None:
        """It has this value until the process sets it again, or ends."""
        if _Listening.is_on and (gauge := self._find(labels)) is not None:
            gauge.set(max(float(value), 0.0))


_TURN_BUCKETS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)
_CALL_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600)
_STORE_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_PASS_BUCKETS: Final = (0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 1800, 3600, 7200, 21_600)

# -- turns

TURNS: Final = Counter("helix_turns", "Turns that ended, by how they did.", ("agent", "outcome"))
TURN_DURATION: Final = Duration(
    "helix_turn_duration",
    "From a turn's begin, or its going on after a wait for people, to its end.",
    ("agent", "outcome"),
    _TURN_BUCKETS,
)
FIRST_CHUNK: Final = Duration(
    "helix_turn_first_chunk",
    "From a turn's begin to the first piece of its first answer.",
    ("agent",),
    _CALL_BUCKETS,
)
MODEL_DURATION: Final = Duration(
    "helix_model_duration", "Calls of models that answered.", ("agent",), _CALL_BUCKETS
)
TOOL_DURATION: Final = Duration(
    "helix_tool_duration", "Calls of tools, by how they ended.", ("agent", "tool", "outcome"), _CALL_BUCKETS
)
TOKENS: Final = Counter("helix_tokens", "Tokens, as the usage log has them.", ("agent", "model", "kind"))
CONTEXT_REPAIRS: Final = Counter(
    "helix_context_repairs", "Results of tools that were mended for model calls.", ("agent",)
)
SUMMARY_FAILURES: Final = Counter("helix_context_summary_failures", "Summaries that failed.", ("agent",))

# -- threads and stores

STEPS: Final = Counter("helix_steps", "Steps that were to be archived, by what became of it.", ("outcome",))
UNARCHIVED_BYTES: Final = Gauge(
    "helix_archive_unarchived_bytes", "Bytes that the newest sweep has not seen archived."
)
UNARCHIVED_AGE: Final = Gauge("helix_archive_unarchived_age_seconds", "Age of the oldest message of them.")
UNARCHIVED_TIMESTAMP: Final = Gauge(
    "helix_archive_unarchived_timestamp_seconds", "When a sweep has told these two, in seconds since 1970."
)
FENCED: Final = Counter("helix_fenced", "Activities that a newer open of their thread has shut out.")
HEAD_MOVED: Final = Counter("helix_head_moved", "Activities whose thread was not where they knew it.")
STORE_UNAVAILABLE: Final = Counter(
    "helix_store_unavailable", "Activities that a store did not answer; they are tried again, or wait for it."
)
REOPENED: Final = Counter("helix_reopened", "Threads that their own session opened again.")
MESSAGES_LOST: Final = Counter("helix_messages_lost", "Acknowledged messages that are lost.")
APPEND_DURATION: Final = Duration(
    "helix_append_duration", "Appends to hot threads.", ("backend",), _STORE_BUCKETS
)
COMMIT_DURATION: Final = Duration(
    "helix_commit_duration", "Commits of turns to the session store.", ("backend",), _STORE_BUCKETS
)
FLUSH_DURATION: Final = Duration(
    "helix_flush_duration", "Flushes of threads to the archive.", ("backend",), _STORE_BUCKETS
)
FLUSH_PUTS: Final = Counter("helix_flush_puts", "Objects that flushes put into the archive.", ("backend",))
HYDRATE_DURATION: Final = Duration(
    "helix_hydrate_duration",
    "Cold threads that were made hot, by the bytes that were.",
    ("backend", "size"),
    _STORE_BUCKETS,
)

# -- streams

STREAM_CHUNKS: Final = Counter("helix_stream_chunks", "Chunks that were written to streams.")
STREAM_DROPPED: Final = Counter("helix_stream_dropped", "Chunks that a stream's store did not take.")

# -- maintenance

MAINTENANCE_SEEN: Final = Counter("helix_maintenance_seen", "What maintenance looked at.", ("schedule",))
MAINTENANCE_DONE: Final = Counter(
    "helix_maintenance_done", "Of these, archived, merged, ended, deleted or woken.", ("schedule",)
)
MAINTENANCE_FAILURES: Final = Counter(
    "helix_maintenance_failures", "Of these, those that failed; and passes that did.", ("schedule",)
)
MAINTENANCE_DURATION: Final = Duration(
    "helix_maintenance_duration",
    "Passes of maintenance that came to their end.",
    ("schedule",),
    _PASS_BUCKETS,
)
MAINTENANCE_LAST_END: Final = Gauge(
    "helix_maintenance_last_end_timestamp_seconds",
    "When such a pass came to an end, or failed, in seconds since 1970.",
    ("schedule",),
)
MAINTENANCE_LAST_SUCCESS: Final = Gauge(
    "helix_maintenance_last_success_timestamp_seconds",
    "When such a pass came to its end, in seconds since 1970.",
    ("schedule",),
)

# -- workers

WORKERS: Final = Gauge("helix_workers", "Workers of the process that serve this task queue.")
"""A worker tells it itself, not one of its activities: it is there before the first of them."""

# -- people

WAITING_SESSIONS: Final = Gauge(
    "helix_waiting_sessions", "Sessions that waited when expired calls were looked for."
)
WAITING_AGE: Final = Gauge("helix_waiting_age_seconds", "For how long the oldest of them has not changed.")

INSTRUMENTS: Final = {each.name: each for each in [*globals().values()] if isinstance(each, Instrument)}
"""All of them, by name."""


def record_turn(agent: str, outcome: str, since: int) -> None:
    """Record a turn that has ended.

    Args:
        agent: Its name.
        outcome: How the turn ended: a run's status, or why it was cut short.
        since: When it began, or went on, in ms since 1970; 0 if that is not known.
    """
    TURNS.add(agent=agent, outcome=outcome)
    if since and find_meter() is not None:
        TURN_DURATION.record(time.time() - since / 1000, agent=agent, outcome=outcome)


def bucket_overrides() -> dict[str, tuple[float, ...]]:
    """The buckets of all histograms, as the SDK's runtime takes them."""
    return {each.name: each.buckets for each in INSTRUMENTS.values() if isinstance(each, Duration)}


def size_class(size: int) -> str:
    """Which of four classes so many bytes are in."""
    bounds = ((64 * 1024, "64KiB"), (1024 * 1024, "1MiB"), (16 * 1024 * 1024, "16MiB"))
    return next((name for bound, name in bounds if size <= bound), "more")
