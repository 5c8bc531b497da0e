"""The deterministic side: a session workflow ready to use, and its parts to embed."""

from helix_temporal.workflows.calls import call
from helix_temporal.workflows.hooks import SessionHooks
from helix_temporal.workflows.maintenance import CleanupWorkflow, KeepWorkflow, SweepWorkflow, WakeWorkflow
from helix_temporal.workflows.session import AgentSession, SessionWorkflow
from helix_temporal.workflows.short_calls import (
    LookReply,
    LookRequest,
    LookWorkflow,
    ThreadReply,
    ThreadRequest,
    ThreadWorkflow,
)

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
    "CleanupWorkflow",
    "KeepWorkflow",
    "LookReply",
    "LookRequest",
    "LookWorkflow",
    "SessionHooks",
    "SessionWorkflow",
    "SweepWorkflow",
    "ThreadReply",
    "ThreadRequest",
    "ThreadWorkflow",
    "WakeWorkflow",
    "call",
]
