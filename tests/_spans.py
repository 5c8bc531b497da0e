"""An exporter that keeps spans, and what the pinned conventions say of their attributes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler

from helix_temporal.telemetry.emitter import Emitter

CONVENTIONS: Final[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "unit" / "telemetry" / "conventions.json").read_text()
)


class KeptSpans:
    """A provider whose spans stay in memory."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler) if sampler else TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def emitter(self, **options: Any) -> Emitter:
        """An emitter of this provider."""
        return Emitter(self.provider, **options)

    def all(self) -> Sequence[ReadableSpan]:
        """All that were exported, oldest first."""
        return self.exporter.get_finished_spans()

    def of(self, session_id: str) -> list[ReadableSpan]:
        """Those of one session."""
        return [each for each in self.all() if attribute(each, "gen_ai.conversation.id") == session_id]


def attribute(span: ReadableSpan, name: str) -> Any:
    """An attribute's value; None if it has none."""
    return (span.attributes or {}).get(name)


def span_id(span: ReadableSpan) -> int:
    """Its id."""
    assert span.context is not None
    return int(span.context.span_id)


def trace_id(span: ReadableSpan) -> int:
    """Of its trace."""
    assert span.context is not None
    return int(span.context.trace_id)


def parent_id(span: ReadableSpan) -> int | None:
    """Its parent's id; None for a root."""
    return None if span.parent is None else int(span.parent.span_id)


def duration_ns(span: ReadableSpan) -> int:
    """How long it took."""
    assert span.start_time is not None
    assert span.end_time is not None
    return span.end_time - span.start_time


def roots(spans: Sequence[ReadableSpan]) -> list[ReadableSpan]:
    """The spans of turns."""
    return [each for each in spans if each.name.startswith("invoke_agent")]


def named(spans: Sequence[ReadableSpan], name: str) -> list[ReadableSpan]:
    """The spans of this name."""
    return [each for each in spans if each.name == name]


def orphans(spans: Sequence[ReadableSpan], known: Sequence[int] = ()) -> list[str]:
    """Names of spans whose parent is neither among them nor known."""
    ids = {*map(span_id, spans), *known}
    return [each.name for each in spans if each.parent is not None and each.parent.span_id not in ids]


def sum_tokens(spans: Sequence[ReadableSpan]) -> tuple[int, int]:
    """Input and output tokens over the spans that count them, each span once."""
    counted = {span_id(each): each for each in spans if attribute(each, "helix.usage.counted")}.values()
    return (
        sum(attribute(each, "gen_ai.usage.input_tokens") for each in counted),
        sum(attribute(each, "gen_ai.usage.output_tokens") for each in counted),
    )


def violations(span: ReadableSpan) -> list[str]:
    """What the conventions say against a span: names they do not have, and such as its operation needs."""
    found = dict(span.attributes or {})
    operation = found.get("gen_ai.operation.name")
    needed = CONVENTIONS["operations"].get(operation, {"name": None})
    wrong = [f"unknown: {name}" for name in found if not name.startswith("helix.") and name not in _KNOWN]
    wrong += [f"missing: {name}" for name in needed.get("required", ()) if name not in found]
    types = {"string": str, "int": int, "string[]": tuple}
    wrong += [
        f"type: {name}"
        for name, value in found.items()
        if name in _KNOWN and not isinstance(value, types[_KNOWN[name]])
    ]
    if needed["name"] is None:
        wrong.append(f"operation: {operation}")
    elif not span.name.startswith(f"{operation} "):
        wrong.append(f"name: {span.name}")
    elif span.kind.name.lower() not in needed["kinds"]:
        wrong.append(f"kind: {span.kind.name}")
    return wrong


_KNOWN: Final[dict[str, str]] = CONVENTIONS["attributes"]
