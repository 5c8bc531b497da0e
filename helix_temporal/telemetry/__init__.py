"""What can be seen of workers and turns from outside: metrics and traces."""

from helix_temporal.telemetry.options import Telemetry

__all__ = ["Telemetry"]
