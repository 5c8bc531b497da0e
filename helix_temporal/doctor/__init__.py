"""Checks a deployment from one machine: settings, stores, clocks, Temporal, workers and maintenance."""

from helix_temporal.doctor.checks import Check, CheckReport
from helix_temporal.doctor.run import check_deployment

__all__ = ["Check", "CheckReport", "check_deployment"]
