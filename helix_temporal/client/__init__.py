"""What an application uses to talk to sessions: `SessionClient`, and a `SessionHandle` for each session."""

from helix_temporal.client._client import SessionClient
from helix_temporal.client._handle import SessionHandle
from helix_temporal.client._reads import SessionStores
from helix_temporal.models.ids import workflow_id

__all__ = ["SessionClient", "SessionHandle", "SessionStores", "workflow_id"]
