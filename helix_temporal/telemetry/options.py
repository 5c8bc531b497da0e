"""What an application says of telemetry when it connects."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Where metrics and traces of a client and its workers go.

    Attributes:
        prometheus: Address, as ``0.0.0.0:9090``, at which Prometheus fetches the metrics of Temporal's SDK
            and ours.
        otlp: Address of a collector that they are sent to instead.
        tracer_provider: Takes the spans of turns; with None there are none unless the settings say so.
        content: Whether texts of messages, tools' arguments and results are put on spans.
        redact: Changes such a text before it is put there.
    """

    prometheus: str | None = None
    otlp: str | None = None
    tracer_provider: "TracerProvider | None" = None
    content: bool = False
    redact: Callable[[str], str] | None = None
