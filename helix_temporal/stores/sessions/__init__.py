"""The session store: rules in pure modules, over the port `SessionRecords` and the thread store."""

from helix_temporal.stores.sessions.store import RecordSessions
from helix_temporal.stores.sessions.submissions import uniquify_tool_call_ids

__all__ = ["RecordSessions", "uniquify_tool_call_ids"]
