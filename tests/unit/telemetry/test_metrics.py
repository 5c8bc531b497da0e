"""Metrics are recorded under bounded labels, and cost nothing where nobody takes them."""

import asyncio
import gc
import http.server
import threading
import time
import weakref
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from temporalio import activity
from temporalio.common import MetricCommon, MetricMeter
from temporalio.runtime import MetricBuffer, Runtime, TelemetryConfig
from temporalio.testing import ActivityEnvironment

from helix_temporal.devstack.programs import free_port
from helix_temporal.errors import InvalidConfigError
from helix_temporal.settings import Settings
from helix_temporal.telemetry import Telemetry, metrics
from helix_temporal.telemetry.metrics import INSTRUMENTS, MOST_VALUES, OTHER, Duration
from helix_temporal.telemetry.runtime import metrics_runtime
from helix_temporal.worker import _with_addresses


@pytest.fixture(scope="module")
def buffer() -> MetricBuffer:
    return MetricBuffer(10_000)


@pytest.fixture(scope="module")
def runtime(buffer: MetricBuffer) -> Runtime:
    made = Runtime(telemetry=TelemetryConfig(metrics=buffer))
    metrics.listen_with(made.metric_meter)
    return made


@activity.defn
def do(what: Callable[[], None]) -> None:
    """As an activity of the pack does it."""
    what()


@pytest.fixture
def recorded(runtime: Runtime, buffer: MetricBuffer) -> Callable[[Callable[[], None]], list[Any]]:
    """Runs something in an activity; what it recorded."""

    def run(what: Callable[[], None]) -> list[Any]:
        environment = ActivityEnvironment()
        environment.metric_meter = runtime.metric_meter
        environment.run(do, what)
        return list(buffer.retrieve_updates())

    return run


def test_names_are_what_prometheus_takes() -> None:
    """The SDK's endpoint drops a metric with a dot in its name, and writes a line to the log each time."""
    assert all(name.isidentifier() and name.startswith("helix_") for name in INSTRUMENTS)
    assert all(label.isidentifier() for each in INSTRUMENTS.values() for label in each.labels)


def test_a_histogram_has_buckets_of_its_own() -> None:
    """Those of the SDK end at ten seconds: a turn takes longer."""
    durations = [each for each in INSTRUMENTS.values() if isinstance(each, Duration)]
    assert all(each.buckets == tuple(sorted(set(each.buckets))) != () for each in durations)
    assert set(metrics.bucket_overrides()) == {each.name for each in durations}


def test_outside_of_an_activity_nothing_is_recorded() -> None:
    """Façade and command line do the same work without a worker."""
    metrics.TURNS.add(agent="a", outcome="completed")
    metrics.APPEND_DURATION.record_since(0.0, backend="redis")


def test_a_label_has_so_many_values_and_no_more(recorded: Callable[..., list[Any]]) -> None:
    """A program that makes up names for agents must not fill Prometheus."""

    def count() -> None:
        for number in range(MOST_VALUES + 50):
            metrics.CONTEXT_REPAIRS.add(agent=f"made-up-{number}")

    seen = {each.attributes["agent"] for each in recorded(count)}
    assert OTHER in seen
    assert len(seen) <= MOST_VALUES + 1


def test_what_is_too_long_for_a_label_is_other(recorded: Callable[..., list[Any]]) -> None:
    (update,) = recorded(lambda: metrics.TOKENS.add(1, agent="x" * 500, model="", kind="input"))
    assert update.attributes["agent"] == update.attributes["model"] == OTHER


def test_a_clock_that_was_set_back_is_no_negative_duration(recorded: Callable[..., list[Any]]) -> None:
    """An OpenTelemetry histogram takes none."""
    ahead = round(time.time() * 1000) + 60_000
    updates = recorded(lambda: metrics.record_turn("a", "completed", ahead))
    assert {each.metric.name: each.value for each in updates}["helix_turn_duration"] == 0


def test_a_turn_whose_begin_is_not_known_is_counted(recorded: Callable[..., list[Any]]) -> None:
    updates = recorded(lambda: metrics.record_turn("a", "failed", 0))
    assert [each.metric.name for each in updates] == ["helix_turns"]


# -- instruments are kept


class WorkersClient:
    """Stands for the client of a worker."""


@activity.defn
async def count_repair() -> None:
    """As an activity of the pack counts."""
    metrics.CONTEXT_REPAIRS.add(agent="main")


async def repair(client: WorkersClient | None, runtime: Runtime) -> None:
    """Count once on the worker that has this client."""
    environment = ActivityEnvironment(client=cast("Any", client))
    environment.metric_meter = runtime.metric_meter
    # In a task of its own, as a worker does it: the activity's context ends with it.
    await asyncio.create_task(environment.run(count_repair))


def count_repairs(buffer: MetricBuffer) -> int:
    """How often it was counted since this was asked last."""
    return sum(int(each.value) for each in buffer.retrieve_updates())


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the counters that the SDK had to make."""
    found: list[str] = []
    make = metrics.Counter.make

    def make_and_note(counter: metrics.Counter, meter: MetricMeter) -> MetricCommon:
        found.append(counter.name)
        return make(counter, meter)

    monkeypatch.setattr(metrics.Counter, "make", make_and_note)
    return found


async def test_an_instrument_is_made_once_for_a_worker(runtime: Runtime, made: list[str]) -> None:
    """Making one takes five times as long as recording, and each activity has a meter of its own."""
    client = WorkersClient()
    for _ in range(3):
        await repair(client, runtime)
    assert made == ["helix_context_repairs"]


async def test_workers_of_two_runtimes_count_each_with_its_own(
    runtime: Runtime, buffer: MetricBuffer
) -> None:
    """A program may connect to two clusters, each with its own address for metrics."""
    other_buffer = MetricBuffer(1000)
    other = Runtime(telemetry=TelemetryConfig(metrics=other_buffer))
    one, two = WorkersClient(), WorkersClient()
    count_repairs(buffer)
    for _ in range(2):
        await repair(one, runtime)
        await repair(two, other)
    assert (count_repairs(buffer), count_repairs(other_buffer)) == (2, 2)


async def test_without_a_workers_client_an_instrument_is_made_each_time(
    runtime: Runtime, buffer: MetricBuffer, made: list[str]
) -> None:
    """What does not run on the event loop has none; it is counted all the same."""
    count_repairs(buffer)
    for _ in range(2):
        await repair(None, runtime)
    assert count_repairs(buffer) == len(made) == 2


async def test_the_instruments_of_a_client_go_with_it(runtime: Runtime) -> None:
    """A program that connects again and again does not grow."""
    client = WorkersClient()
    await repair(client, runtime)
    gone = weakref.ref(client)
    del client
    gc.collect()
    assert gone() is None


# -- where they go


def test_without_an_address_the_client_has_the_runtime_of_its_program() -> None:
    """What the application set up stays."""
    assert metrics_runtime(Telemetry()) is None


def test_an_address_has_one_runtime() -> None:
    """A program that connects twice, to two namespaces, listens once."""
    telemetry = Telemetry(prometheus=f"127.0.0.1:{free_port()}")
    assert metrics_runtime(telemetry) is metrics_runtime(Telemetry(prometheus=telemetry.prometheus))


def test_a_taken_address_is_told_with_what_to_do() -> None:
    """The second worker on a machine, with the settings of the first."""
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as taken:
        address = f"127.0.0.1:{taken.server_port}"
        with pytest.raises(InvalidConfigError, match=r"in use.*each process needs a port of its own"):
            metrics_runtime(Telemetry(prometheus=address))


@pytest.mark.parametrize(
    ("telemetry", "why"),
    [
        (Telemetry(prometheus="somewhere"), "metrics_prometheus.*IP address and a port"),
        (Telemetry(otlp="somewhere"), "metrics_otlp.*The address of a collector"),
        (Telemetry(prometheus="127.0.0.1:1", otlp="http://c:4317"), "both set"),
    ],
)
def test_a_wrong_address_is_refused(telemetry: Telemetry, why: str) -> None:
    with pytest.raises(InvalidConfigError, match=why):
        metrics_runtime(telemetry)


def test_settings_fill_in_where_the_program_names_no_address() -> None:
    """A program that gives a provider of traces alone leaves metrics to whoever deploys it."""
    settings = Settings.from_env({"HELIX_METRICS_PROMETHEUS": "0.0.0.0:9464"})
    assert _with_addresses(Telemetry(content=True), settings) == Telemetry(
        prometheus="0.0.0.0:9464", content=True
    )
    own = Telemetry(otlp="http://collector:4317")
    assert _with_addresses(own, settings) == own


class _Collector(http.server.BaseHTTPRequestHandler):
    """Keeps what it is sent."""

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        self.server.sent.append(ExportMetricsServiceRequest.FromString(self.rfile.read(size)))  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base's name)
        """Say nothing."""


@pytest.fixture(scope="session")
def collector() -> http.server.HTTPServer:
    """A collector that takes OTLP over HTTP; as long as the process, which sends to it from now on."""
    server = http.server.HTTPServer(("127.0.0.1", 0), _Collector)
    server.sent = []  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def test_a_collector_can_tell_two_workers_apart(
    collector: http.server.HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else their counters are one series, which jumps back and forth."""
    monkeypatch.setattr("helix_temporal.telemetry.runtime.PERIOD", timedelta(milliseconds=200))
    made = metrics_runtime(Telemetry(otlp=f"http://127.0.0.1:{collector.server_port}/v1/metrics"))
    assert made is not None
    metrics.listen_with(made.metric_meter)
    environment = ActivityEnvironment()
    environment.metric_meter = made.metric_meter
    environment.run(do, lambda: metrics.record_turn("a", "completed", 1))
    sent = wait_for(lambda: collector.sent)  # type: ignore[attr-defined]
    (resource,) = sent[0].resource_metrics
    about = {each.key: each.value.string_value for each in resource.resource.attributes}
    names = {each.name for scope in resource.scope_metrics for each in scope.metrics}
    assert len(about["service.instance.id"]) == 32
    assert {"helix_turns", "helix_turn_duration"} <= names


def wait_for(find: Callable[[], Any]) -> Any:
    """What is found, as soon as something is."""
    end = time.monotonic() + 20
    while not (found := find()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def test_the_page_names_each_metric() -> None:
    """Who looks at a board wants to know what it shows."""
    page = (Path(__file__).parents[3] / "docs" / "telemetry.md").read_text()
    shown = page.replace("`…_done", "`helix_maintenance_done").replace("`…_fail", "`helix_maintenance_fail")
    rows = {
        line.split("|")[1]: line.split("|")[2] for line in shown.splitlines() if line.startswith("| `helix_")
    }
    for each in INSTRUMENTS.values():
        (labels,) = [found for names, found in rows.items() if f"`{each.name}{each.suffix}`" in names]
        assert labels.replace("–", "").strip() == ", ".join(each.labels), each.name
