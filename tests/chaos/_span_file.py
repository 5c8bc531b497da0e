"""Spans of worker processes in a file: what was exported before each of them was killed."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

EXPORT_SECONDS: Final = 0.2
"""A batch is exported so long after its first span."""


@dataclass(frozen=True, slots=True)
class FoundSpan:
    """A span that was exported."""

    name: str
    trace_id: int
    span_id: int
    parent: int | None
    attributes: dict[str, Any]

    @property
    def is_root(self) -> bool:
        """Whether it stands for a turn."""
        return self.name.startswith("invoke_agent")


class FileExporter(SpanExporter):
    """Appends spans to a file that several processes share, a line each."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """One write: a killed process leaves no half of it."""
        os.write(self._file, "".join(json.dumps(_fields(each)) + "\n" for each in spans).encode())
        return SpanExportResult.SUCCESS


def _fields(span: ReadableSpan) -> dict[str, Any]:
    assert span.context is not None
    return {
        "name": span.name,
        "trace_id": span.context.trace_id,
        "span_id": span.context.span_id,
        "parent": None if span.parent is None else span.parent.span_id,
        "attributes": dict(span.attributes or {}),
    }


def file_provider(path: Path) -> TracerProvider:
    """A provider that exports to a file, in batches as to a collector."""
    provider = TracerProvider()
    delay = int(EXPORT_SECONDS * 1000)
    provider.add_span_processor(BatchSpanProcessor(FileExporter(path), schedule_delay_millis=delay))
    return provider


def read_spans(path: Path) -> Iterator[FoundSpan]:
    """All spans of a file."""
    for line in path.read_text().splitlines():
        yield FoundSpan(**json.loads(line))
