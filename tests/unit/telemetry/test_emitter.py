"""Spans leave beside the work: neither a slow exporter nor a broken one is ever felt by a turn."""

import logging
import subprocess
import sys
import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry import trace as otel
from opentelemetry.sdk.trace import TracerProvider, sampling
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import NoOpTracerProvider, Tracer
from opentelemetry.trace import Span as OtelSpan

from helix_temporal.errors import HelixError, StoreUnavailableError
from helix_temporal.models.traces import TurnTrace
from helix_temporal.telemetry import Telemetry
from helix_temporal.telemetry import emitter as module
from helix_temporal.telemetry.emitter import Emitter, current_traceparent, open_emitter
from helix_temporal.telemetry.ids import SpanRef, derive_span_id, derive_trace_id
from helix_temporal.telemetry.spans import ErrorTypes, Span, Turn, cut_content
from tests._spans import KeptSpans, span_id, trace_id

TURN = Turn("s", "r", "main", SpanRef(derive_trace_id("s", "r"), derive_span_id("s", "r", "turn")))


def a_root(**fields: Any) -> Span:
    """The span of a turn."""
    return TURN.end(
        TurnTrace(root=TURN.root.traceparent, started=1_000, **fields), "completed", 2_000_000_000
    )


class Exporter(SpanExporter):
    """Waits until it may go on, or fails."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails, self.may = fails, threading.Event()
        self.count = 0

    def export(self, spans: Any) -> SpanExportResult:
        """See the class."""
        if self.fails:
            raise OSError("no collector")
        self.may.wait(30)
        self.count += len(spans)
        return SpanExportResult.SUCCESS


def emitter_of(exporter: Exporter) -> Emitter:
    """An emitter whose provider exports each span at once: the worst that an application can set up."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Emitter(provider)


def test_an_exporter_that_hangs_holds_nothing_up() -> None:
    """A collector that takes connections and says nothing must not stop a conversation."""
    exporter = Exporter()
    emitter = emitter_of(exporter)
    began = time.monotonic()
    for _ in range(100):
        emitter.emit(a_root())
    assert time.monotonic() - began < 15  # one that waited for the exporter would take thirty seconds
    assert not emitter.flush(0.05)
    exporter.may.set()
    assert emitter.flush(10)
    assert exporter.count == 100


def test_more_spans_than_can_wait_are_dropped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Memory has an end; the log says it, once."""
    monkeypatch.setattr(module, "_MAX_WAITING", 10)
    exporter = Exporter()
    emitter = emitter_of(exporter)
    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            emitter.emit(a_root())
    assert emitter.dropped >= 29
    assert caplog.text.count("spans are dropped") == 1
    exporter.may.set()
    assert emitter.flush(10)


def test_an_exporter_that_fails_fails_nothing_else() -> None:
    """The next span is tried all the same."""
    exporter = Exporter(fails=True)
    emitter = emitter_of(exporter)
    emitter.emit(a_root())
    assert emitter.flush(10)
    exporter.fails = False
    exporter.may.set()
    emitter.emit(a_root())
    assert emitter.flush(10)
    assert exporter.count == 1


def test_what_others_say_of_a_text_is_not_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A function that redacts is given texts, and may name them in its error."""

    def redact(text: str) -> str:
        raise RuntimeError(f"cannot redact {text}")

    kept = KeptSpans()
    emitter = kept.emitter(content=True, redact=redact)
    emitter.emit(replace(a_root(), content={"gen_ai.input.messages": "a secret"}))
    assert emitter.flush()
    assert "telemetry, export: RuntimeError" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("sampled", [True, False])
def test_a_turn_is_sampled_whatever_span_is_current(sampled: bool) -> None:
    """An activity may run within a span of somebody else's, and the root is asked for without one."""
    flags = otel.TraceFlags(int(sampled))
    current = otel.NonRecordingSpan(otel.SpanContext(1, 2, is_remote=False, trace_flags=flags))
    emitter = Emitter(TracerProvider(sampler=sampling.ParentBased(sampling.TraceIdRatioBased(0.5))))
    low, high = 1, (1 << 128) - 1
    with otel.use_span(current):
        assert emitter.is_sampled(low, "invoke_agent a")
        assert not emitter.is_sampled(high, "invoke_agent a")


def test_an_emitter_that_is_closed_takes_nothing() -> None:
    """An activity may end after its worker."""
    kept = KeptSpans()
    emitter = kept.emitter()
    emitter.emit(a_root())
    emitter.close()
    emitter.emit(a_root())
    assert len(kept.all()) == 1


def test_the_applications_own_spans_have_their_own_ids() -> None:
    """Its provider is used, and not changed."""
    kept = KeptSpans()
    emitter = kept.emitter()
    other = kept.provider.get_tracer("application")
    other.start_span("one").end()
    emitter.emit(a_root())
    assert emitter.flush()
    other.start_span("two").end()
    one, root, two = kept.all()
    assert len({*map(trace_id, (one, root, two))}) == 3
    assert (trace_id(root), span_id(root)) == (TURN.root.trace_id, TURN.root.span_id)


def test_a_second_emitter_of_the_provider_is_no_other() -> None:
    """Two workers in one process."""
    kept = KeptSpans()
    for emitter in (kept.emitter(), kept.emitter()):
        emitter.emit(a_root())
        assert emitter.flush()
    assert {*map(span_id, kept.all())} == {TURN.root.span_id}


class Foreign(otel.TracerProvider):
    """A provider that is not the SDK's: spans have ids of its own."""

    def __init__(self) -> None:
        self.kept = KeptSpans()

    def get_tracer(self, *args: Any, **options: Any) -> Tracer:
        """A tracer that hides what it is."""
        return _Hiding(self.kept.provider.get_tracer("foreign"))


class _Hiding(Tracer):
    def __init__(self, inner: Tracer) -> None:
        self._inner = inner

    def start_span(self, *args: Any, **options: Any) -> OtelSpan:
        return self._inner.start_span(*args, **options)

    def start_as_current_span(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError


def test_a_provider_of_another_make_gives_its_own_ids() -> None:
    """Spans are then found together by session and run, and linked where they would have had a caller."""
    foreign, caller = Foreign(), SpanRef(1, 2)
    emitter = Emitter(foreign)
    emitter.emit(TURN.chat("m", TURN.ref("chat", "a"), 0, 1, step=1))
    emitter.emit(a_root(parent=caller.traceparent, before=SpanRef(3, 4).traceparent))
    assert emitter.flush()
    chat, root = foreign.kept.all()
    assert chat.parent is None
    assert trace_id(chat) != TURN.root.trace_id
    assert root.parent is not None
    assert root.parent.span_id == 2
    assert [each.context.span_id for each in root.links] == [4]
    with emitter.nested(TURN.root):
        assert current_traceparent() is None


def test_a_provider_that_does_nothing_is_given_all() -> None:
    """The API alone, without its SDK."""
    emitter = Emitter(NoOpTracerProvider())
    emitter.emit(a_root())
    assert emitter.flush()


# -- which provider


@pytest.fixture
def no_global(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a program that has set no provider."""
    monkeypatch.setattr(otel, "_TRACER_PROVIDER", None)


def test_there_are_no_traces_unless_somebody_asks() -> None:
    """Metrics alone are no reason."""
    assert open_emitter(None) is None
    assert open_emitter(Telemetry(prometheus="0.0.0.0:9090", content=True)) is None


def test_a_provider_that_is_given_is_used() -> None:
    """And what goes with it."""
    found = open_emitter(Telemetry(tracer_provider=KeptSpans().provider, content=True))
    assert found is not None
    assert found.content


def test_the_setting_uses_the_global_provider(no_global: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As all other instrumentations do."""
    kept = KeptSpans()
    monkeypatch.setattr(otel, "_TRACER_PROVIDER", kept.provider)
    found = open_emitter(None, traces=True)
    assert found is not None
    found.emit(a_root())
    found.close()
    assert len(kept.all()) == 1
    kept.provider.get_tracer("application").start_span("after").end()
    assert len(kept.all()) == 2  # not ended: it is not ours


def test_without_a_global_provider_one_is_made(no_global: None) -> None:
    """Which exports as the standard variables say."""
    found = open_emitter(None, traces=True)
    assert found is not None
    assert found.derives
    found.close()


def test_without_opentelemetry_there_are_no_traces(
    no_global: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker serves all the same, and says what is missing."""
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with caplog.at_level(logging.WARNING):
        assert open_emitter(None, traces=True) is None
    assert "helix-temporal[otel]" in caplog.text


def test_nothing_is_imported_before_it_is_needed() -> None:
    """The extra is optional; and workflow code must not load it."""
    code = (
        "import sys, helix_temporal.plugin, helix_temporal.backends, helix_temporal.client, "
        "helix_temporal.workflows, helix_temporal.cli.commands\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_client_without_opentelemetry_sends_no_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks only at what is loaded."""
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    assert current_traceparent() is None


# -- errors and content


def test_a_million_kinds_of_errors_are_few() -> None:
    """Code can make classes up; a backend indexes each value."""
    found = ErrorTypes()
    names = {found.name_error(type(f"Error{number}", (Exception,), {})()) for number in range(1000)}
    assert len(names) == 201
    assert "_OTHER" in names


def test_an_applications_own_errors_are_counted_too() -> None:
    """Whatever they are derived from."""
    found = ErrorTypes(limit=3)
    names = {found.name_error(type(f"Error{number}", (HelixError,), {})("no")) for number in range(10)}
    assert len(names) == 4
    assert found.name_error(StoreUnavailableError("away")) == "StoreUnavailableError"


def test_an_error_with_an_odd_name_is_another() -> None:
    """A name is no place for texts."""
    assert ErrorTypes().name_error(type("a secret text", (Exception,), {})()) == "_OTHER"


def test_a_text_is_cut_between_letters() -> None:
    """Half a letter is none."""
    assert cut_content("ü" * 5000).encode().decode() == "ü" * 4094 + "…"
    assert cut_content("short") == "short"
    assert cut_content("\ud800") == "?"


def test_a_clock_that_steps_back_makes_no_negative_turn() -> None:
    """Start and end of a turn are two workers' clocks."""
    span = TURN.end(TurnTrace(root=TURN.root.traceparent, started=5_000), "completed", 1)
    assert span.end_ns == span.start_ns == 5_000_000_000
