"""Activities: classes that receive protocols; no driver and no environment.

A workflow of one's own runs them by `helix_temporal.workflows.call`.
"""

from helix_temporal.activities._payloads import Payloads
from helix_temporal.activities._step import StepLimits, Stepper
from helix_temporal.activities.checkpoints import CheckpointActivities
from helix_temporal.activities.children import ChildActivities
from helix_temporal.activities.cleanup import CleanupActivities
from helix_temporal.activities.deletion import DeletionActivities
from helix_temporal.activities.locks import LockActivities
from helix_temporal.activities.maintenance import MaintenanceActivities
from helix_temporal.activities.reads import SessionReads
from helix_temporal.activities.sessions import SessionActivities
from helix_temporal.activities.states import SessionStoreActivities
from helix_temporal.activities.take_backs import TakeBacks
from helix_temporal.activities.threads import ThreadActivities
from helix_temporal.activities.tools import ToolRunner
from helix_temporal.activities.usage import UsageActivities
from helix_temporal.activities.waking import WakingActivities

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
