"""Activities: classes that receive protocols; no driver and no environment."""

from helix_temporal.activities._payloads import Payloads
from helix_temporal.activities._step import StepLimits, Stepper
from helix_temporal.activities.locks import LockActivities
from helix_temporal.activities.sessions import SessionActivities
from helix_temporal.activities.threads import ThreadActivities
from helix_temporal.activities.tools import ToolRunner
from helix_temporal.activities.usage import UsageActivities

__all__ = [
    "LockActivities",
    "Payloads",
    "SessionActivities",
    "StepLimits",
    "Stepper",
    "ThreadActivities",
    "ToolRunner",
    "UsageActivities",
]
