"""Sessions and files of Google's ADK in our stores.

``Runner(agent=…, session_service=HelixSessionService(backends.sessions),
artifact_service=HelixArtifactService(backends.records), …)``
"""

from helix_temporal.frameworks.google_adk.artifacts import HelixArtifactService
from helix_temporal.frameworks.google_adk.sessions import HelixSessionService

__all__ = ["HelixArtifactService", "HelixSessionService"]
