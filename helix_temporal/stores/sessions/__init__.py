"""The session store: rules in pure modules, over the port `SessionRecords` and the thread store."""

from helix_temporal.stores.sessions.call_answers import uniquify_tool_call_ids
from helix_temporal.stores.sessions.store import RecordSessions

__all__ = ["RecordSessions", "uniquify_tool_call_ids"]
