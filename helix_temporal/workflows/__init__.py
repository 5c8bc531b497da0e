"""The deterministic side: a session workflow ready to use, and its parts to embed."""

from helix_temporal.workflows._cleanup import CleanupWorkflow
from helix_temporal.workflows._hooks import SessionHooks
from helix_temporal.workflows._keeper import KeepWorkflow
from helix_temporal.workflows._look import LookReply, LookRequest, LookWorkflow
from helix_temporal.workflows._maintenance import SweepWorkflow
from helix_temporal.workflows._session import AgentSession
from helix_temporal.workflows._session_store import SessionStoreCalls
from helix_temporal.workflows._stores import CheckpointCalls, LockCalls, UsageCalls
from helix_temporal.workflows._thread import ThreadReply, ThreadRequest, ThreadWorkflow
from helix_temporal.workflows._waking import WakeWorkflow
from helix_temporal.workflows._workflow import SessionWorkflow
from helix_temporal.workflows.calls import call

WORKFLOWS = (
    SessionWorkflow,
    CleanupWorkflow,
    KeepWorkflow,
    LookWorkflow,
    SweepWorkflow,
    ThreadWorkflow,
    WakeWorkflow,
)
"""All workflows of the pack, ready to register."""

__all__ = [
    "WORKFLOWS",
    "AgentSession",
    "CheckpointCalls",
    "CleanupWorkflow",
    "KeepWorkflow",
    "LockCalls",
    "LookReply",
    "LookRequest",
    "LookWorkflow",
    "SessionHooks",
    "SessionStoreCalls",
    "SessionWorkflow",
    "SweepWorkflow",
    "ThreadReply",
    "ThreadRequest",
    "ThreadWorkflow",
    "UsageCalls",
    "WakeWorkflow",
    "call",
]
