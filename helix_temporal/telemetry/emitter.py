"""Gives spans to OpenTelemetry, beside the work that they tell of: a thread of its own, and a bounded queue.

OpenTelemetry is imported when the first emitter is opened.  Neither a slow exporter nor a broken one is ever
felt by a turn.
"""

import contextlib
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from helix_temporal.telemetry import genai
from helix_temporal.telemetry.ids import SpanRef
from helix_temporal.telemetry.options import Telemetry
from helix_temporal.telemetry.spans import Redact, Span, write_content

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanContext, TracerProvider

_log: Final = logging.getLogger(__name__)
_MAX_WAITING: Final = 8192
"""Spans that wait for the thread; more are dropped, and said to be."""
_GATHER: Final = 0.05
"""Seconds that spans wait for others."""
_QUIET: Final = 60.0
"""Seconds between two lines of the log about the same trouble."""
_LAST_PATIENCE: Final = 5.0
"""Seconds that a worker which stops waits for spans on their way."""

_ids: ContextVar[tuple[int, int] | None] = ContextVar("helix_temporal_span_ids", default=None)
"""Trace and span id of the span that is being recorded."""


class _Api:
    """What is used of OpenTelemetry's API, imported once and late."""

    def __init__(self) -> None:
        from opentelemetry import context, trace  # noqa: PLC0415

        self.context = context
        self.nothing = context.Context()
        self.kinds = {"client": trace.SpanKind.CLIENT, "internal": trace.SpanKind.INTERNAL}
        self.flags = {True: trace.TraceFlags(1), False: trace.TraceFlags(0)}
        self.error = trace.StatusCode.ERROR
        self.trace = trace

    def as_context(self, ref: SpanRef) -> "SpanContext":
        """The span as others name it."""
        return self.trace.SpanContext(
            ref.trace_id, ref.span_id, is_remote=True, trace_flags=self.flags[ref.sampled]
        )

    def within(self, ref: SpanRef | None, base: "Context") -> "Context":
        """A context whose current span is this one."""
        if ref is None:
            return base
        return self.trace.set_span_in_context(self.trace.NonRecordingSpan(self.as_context(ref)), base)


class _DerivedIds:
    """An ``IdGenerator`` of the SDK that gives the ids at hand, else what the provider's own one gives."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def generate_trace_id(self) -> int:
        ids = _ids.get()
        return int(self._inner.generate_trace_id()) if ids is None else ids[0]

    def generate_span_id(self) -> int:
        ids = _ids.get()
        return int(self._inner.generate_span_id()) if ids is None else ids[1]

    def is_trace_id_random(self) -> bool:
        ids = _ids.get()
        if ids is not None:
            return False  # the same for every attempt
        return bool(getattr(self._inner, "is_trace_id_random", lambda: False)())


class Emitter:
    """Records spans with a provider of OpenTelemetry.

    With a provider of its SDK, spans have the ids that they were given.  Any other provider gives ids of its
    own: a turn's spans then are traces of their own, found together by ``gen_ai.conversation.id`` and
    ``helix.run.id``.

    Args:
        provider: Takes the spans.
        content: Whether texts of conversations go with them.
        redact: Changes such a text before.
        owned: The provider ends with the emitter.

    Attributes:
        dropped: Spans that did not fit into the queue.
        unsampled: Spans that were recorded, and that the provider's own sampler has left out.
    """

    def __init__(
        self,
        provider: "TracerProvider",
        *,
        content: bool = False,
        redact: Redact | None = None,
        owned: bool = False,
    ) -> None:
        self.content, self._redact = content, redact
        self._provider: Any = provider
        self._api = _Api()
        self._owned = owned
        self._tracer: Any = provider.get_tracer(genai.SCOPE, schema_url=genai.SCHEMA_URL)
        self.derives = hasattr(self._tracer, "id_generator") and hasattr(self._tracer, "sampler")
        tracer: Any = self._tracer
        if self.derives and not isinstance(tracer.id_generator, _DerivedIds):
            # Of this tracer alone: those of the application get their ids as before.
            tracer.id_generator = _DerivedIds(tracer.id_generator)
        self._waiting: deque[Span] = deque()
        self._news = threading.Condition()
        self._taken = self._done = 0
        self._thread: threading.Thread | None = None
        self._closed = self._hurry = False
        self._complaints: dict[str, float] = {}
        self.dropped = self.unsampled = 0

    # -- ids

    def is_sampled(self, trace_id: int, name: str) -> bool:
        """What the provider's sampler says of a trace that has no caller; every worker's says the same."""
        if not self.derives:
            return True
        try:
            # As the SDK will ask it for the root: of no context, whatever span is current in the activity.
            kind = self._api.kinds["internal"]
            decided = self._tracer.sampler.should_sample(self._api.nothing, trace_id, name, kind)
            return bool(decided.decision.is_sampled())
        except Exception as error:  # noqa: BLE001 (an application's own sampler)
            self._complain("sampler", type(error).__name__)
            return True

    @contextlib.contextmanager
    def nested(self, ref: SpanRef) -> Iterator[None]:
        """Make spans of others, such as a provider's own instrumentation, children of this one."""
        if not self.derives:
            yield
            return
        context = self._api.context
        token = context.attach(self._api.within(ref, context.get_current()))
        try:
            yield
        finally:
            context.detach(token)

    # -- spans

    def emit(self, span: Span) -> None:
        """Have a span recorded; returns at once, and raises nothing."""
        if self.derives and not span.ref.sampled:
            return
        with self._news:
            full = self._closed or len(self._waiting) >= _MAX_WAITING
            if not full:
                self._waiting.append(span)
                self._taken += 1
                if self._taken == self._done + 1:
                    self._news.notify_all()  # the thread sleeps
            if self._thread is None:
                self._thread = threading.Thread(target=self._record_all, name="helix-spans", daemon=True)
                self._thread.start()
        if full:
            self.dropped += 1
            self._complain("queue", "spans are dropped, since the exporter is too slow")

    def flush(self, seconds: float = _LAST_PATIENCE) -> bool:
        """Wait until all spans are recorded, and exported as far as the provider tells; whether they are."""
        until = time.monotonic() + seconds
        with self._news:
            wanted, self._hurry = self._taken, True
            self._news.notify_all()
            arrived = self._news.wait_for(lambda: self._done >= wanted, seconds)
            self._hurry = False
        if not arrived:
            return False
        flush = getattr(self._provider, "force_flush", None)
        if flush is None:
            return True
        done: list[bool] = []
        left = max(until - time.monotonic(), 0.1)
        # Not every exporter keeps to its time.
        flusher = threading.Thread(
            target=lambda: done.append(self._try_call(lambda: flush(int(left * 1000)))), daemon=True
        )
        flusher.start()
        flusher.join(left)
        return done == [True]

    def close(self, seconds: float = _LAST_PATIENCE) -> None:
        """Record what waits, but not for long."""
        flushed = self.flush(seconds)
        if not flushed:
            _log.warning("spans are lost: they were not exported within %g s", seconds)
        with self._news:
            self._closed = True
            self._news.notify_all()
        if self._owned and flushed:
            self._try_call(lambda: self._provider.shutdown())

    def _record_all(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._waiting or self._closed)
                # More will come: a thread that wakes up for each span costs more than the span.
                self._news.wait_for(lambda: self._hurry or self._closed, _GATHER)
                batch = list(self._waiting)
                self._waiting.clear()
                if not batch and self._closed:
                    return
            for span in batch:
                try:
                    self._record(span)
                except Exception as error:  # noqa: BLE001 (processors and exporters are the application's)
                    self._complain("export", type(error).__name__)
            with self._news:
                self._done += len(batch)
                self._news.notify_all()

    def _record(self, span: Span) -> None:
        api = self._api
        attributes: dict[str, Any] = span.attributes
        if span.content:
            attributes = attributes | write_content(span.content, self._redact)
        if span.error is not None:
            attributes = attributes | genai.error_attributes(span.error)
        links = [api.trace.Link(api.as_context(ref), {"helix.link": why}) for ref, why in span.links]
        token = _ids.set((span.ref.trace_id, span.ref.span_id))
        try:
            started = self._tracer.start_span(
                span.name,
                context=api.within(self._parent_of(span), api.nothing),
                kind=api.kinds[span.kind],
                attributes=attributes,
                links=links,
                start_time=span.start_ns,
            )
        finally:
            _ids.reset(token)
        self.unsampled += not started.get_span_context().trace_flags.sampled
        for each in span.events:
            started.add_event(each.name, each.attributes, each.at_ns)
        if span.error is not None:
            started.set_status(api.trace.Status(api.error, span.error))
        started.end(end_time=span.end_ns)

    def _parent_of(self, span: Span) -> SpanRef | None:
        """The span's parent, where it is one that will be recorded: another provider gives it other ids."""
        is_callers = span.parent is not None and span.name.startswith(genai.INVOKE_AGENT)
        return span.parent if self.derives or is_callers else None

    def _try_call(self, call: Callable[[], Any]) -> bool:
        try:
            return call() is not False
        except Exception as error:  # noqa: BLE001 (as in _record_all)
            self._complain("export", type(error).__name__)
            return False

    def _complain(self, what: str, why: str) -> None:
        """Say what is wrong with the telemetry, once a minute: it must not fill the log either.

        ``why`` is the class of an error of others: their texts may hold what a span had.
        """
        now = time.monotonic()
        if now >= self._complaints.get(what, 0.0):
            self._complaints[what] = now + _QUIET
            _log.warning("telemetry, %s: %s", what, why)


# -- which provider


def open_emitter(
    telemetry: Telemetry | None, *, traces: bool = False, content: bool = False
) -> Emitter | None:
    """The emitter of a process; None where nobody asked for traces, or OpenTelemetry is not installed.

    Args:
        telemetry: What the application gave; its provider is used if it has one.
        traces: Without such a provider: use OpenTelemetry's global one, or if the application has set none,
            one that exports by OTLP as the standard variables ``OTEL_…`` say.
        content: Whether texts of conversations go with spans, unless ``telemetry`` says so already.
    """
    given = None if telemetry is None else telemetry.tracer_provider
    if given is None and not traces:
        return None
    telemetry = telemetry or Telemetry()
    fields: dict[str, Any] = {"content": telemetry.content or content, "redact": telemetry.redact}
    if given is not None:
        return Emitter(given, **fields)
    try:
        found, owned = _find_provider()
    except ImportError as error:
        _log.warning("no traces: %s; install helix-temporal[otel]", error)
        return None
    return Emitter(found, owned=owned, **fields)


def _find_provider() -> tuple[Any, bool]:
    """The global provider, or one of our own where there is none; and whether it is ours."""
    from opentelemetry import trace  # noqa: PLC0415

    found = trace.get_tracer_provider()
    if not isinstance(found, trace.ProxyTracerProvider):
        return found, False
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

    return make_provider(OTLPSpanExporter()), True


def make_provider(exporter: Any) -> Any:
    """A provider that exports in batches; its resource and sampler are as ``OTEL_…`` says."""
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "helix-temporal"}))
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


# -- the caller's side


def current_traceparent() -> str | None:
    """The span that is current in this context, for a message on its way; None where there is none.

    It looks only if the application uses OpenTelemetry itself.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or not hasattr(trace, "get_current_span"):
        return None
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return SpanRef(context.trace_id, context.span_id, bool(context.trace_flags.sampled)).traceparent
