"""The deterministic side: a session workflow ready to use, and its parts to embed."""

from helix_temporal.workflows._hooks import SessionHooks
from helix_temporal.workflows._session import AgentSession, SessionWorkflow

__all__ = ["AgentSession", "SessionHooks", "SessionWorkflow"]
