"""Sessions of Google's ADK: ``Runner(agent=…, session_service=HelixSessionService(store), …)``."""

from helix_temporal.frameworks.google_adk.sessions import HelixSessionService

__all__ = ["HelixSessionService"]
