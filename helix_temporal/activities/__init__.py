"""Activities: classes that receive protocols; no driver and no environment.

A workflow of one's own runs them by `helix_temporal.workflows.call`.
"""

from helix_temporal.activities.deletion import DeletionActivities
from helix_temporal.activities.maintenance import CleanupActivities, MaintenanceActivities, WakingActivities
from helix_temporal.activities.payloads import Payloads
from helix_temporal.activities.reads import SessionReads
from helix_temporal.activities.rewinds import TakeBacks
from helix_temporal.activities.sessions import SessionActivities
from helix_temporal.activities.steps import StepLimits, Stepper
from helix_temporal.activities.stores import CheckpointActivities, LockActivities, SessionStoreActivities
from helix_temporal.activities.sub_agents import ChildActivities
from helix_temporal.activities.threads import ThreadActivities
from helix_temporal.activities.tools import ToolRunner
from helix_temporal.activities.usage import UsageActivities

__all__ = [
    "CheckpointActivities",
    "ChildActivities",
    "CleanupActivities",
    "DeletionActivities",
    "LockActivities",
    "MaintenanceActivities",
    "Payloads",
    "SessionActivities",
    "SessionReads",
    "SessionStoreActivities",
    "StepLimits",
    "Stepper",
    "TakeBacks",
    "ThreadActivities",
    "ToolRunner",
    "UsageActivities",
    "WakingActivities",
]
