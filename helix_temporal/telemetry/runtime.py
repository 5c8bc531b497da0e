"""The SDK's runtime that gives out metrics: one for each address in a process."""

import uuid
from datetime import timedelta
from typing import Final

from temporalio.runtime import OpenTelemetryConfig, PrometheusConfig, Runtime, TelemetryConfig

from helix_temporal.errors import InvalidConfigError
from helix_temporal.telemetry.metrics import bucket_overrides
from helix_temporal.telemetry.options import Telemetry

PERIOD: Final = timedelta(seconds=10)
"""Between two sendings to a collector."""

_INSTANCE: Final = {"service.instance.id": uuid.uuid4().hex}
"""Two workers that send to one collector would else be one series, whose counter jumps back and forth."""

_runtimes: dict[tuple[str | None, str | None], Runtime] = {}


def metrics_runtime(telemetry: Telemetry) -> Runtime | None:
    """The runtime that gives out metrics where ``telemetry`` says; None where it names no address.

    It is made once for each address: an address can be listened at once, and a runtime has threads of its
    own.

    Raises:
        InvalidConfigError: Both addresses are given; or one cannot be used.
    """
    key = telemetry.prometheus, telemetry.otlp
    if key == (None, None):
        return None
    if None not in key:
        raise InvalidConfigError(
            "metrics_prometheus and metrics_otlp are both set: metrics go to one of them. A collector can "
            "offer to Prometheus what it is sent"
        )
    if key not in _runtimes:
        _runtimes[key] = _make_runtime(telemetry)
    return _runtimes[key]


def _make_runtime(telemetry: Telemetry) -> Runtime:
    if telemetry.prometheus is not None:
        return _serve_prometheus(telemetry.prometheus)
    return _send_otlp(telemetry.otlp or "")


def _serve_prometheus(address: str) -> Runtime:
    # Suffixes and seconds are what a collector makes of the same metrics: one dashboard fits both.
    config = PrometheusConfig(
        bind_address=address,
        counters_total_suffix=True,
        unit_suffix=True,
        durations_as_seconds=True,
        histogram_bucket_overrides=bucket_overrides(),
    )
    try:
        return Runtime(telemetry=TelemetryConfig(metrics=config, attach_service_name=False))
    except ValueError as error:
        raise InvalidConfigError(
            f"metrics_prometheus: cannot listen at {address!r}: {error}. An IP address and a port are "
            "expected, as 0.0.0.0:9464, that nobody else listens at: each process needs a port of its own"
        ) from error


def _send_otlp(url: str) -> Runtime:
    config = OpenTelemetryConfig(
        url=url,
        metric_periodicity=PERIOD,
        durations_as_seconds=True,
        http=url.rstrip("/").endswith("/v1/metrics"),
        histogram_bucket_overrides=bucket_overrides(),
    )
    try:
        return Runtime(
            telemetry=TelemetryConfig(metrics=config, attach_service_name=False, global_tags=_INSTANCE)
        )
    except ValueError as error:
        raise InvalidConfigError(
            f"metrics_otlp: cannot send to {url!r}: {error}. The address of a collector is expected, as "
            "http://collector:4317 (gRPC) or http://collector:4318/v1/metrics (HTTP)"
        ) from error
