"""The session store: rules in pure modules, over the port `SessionRows` and the thread store."""

from helix_temporal.stores.sessions.call_answers import uniquify_tool_call_ids
from helix_temporal.stores.sessions.store import RowSessions

__all__ = ["RowSessions", "uniquify_tool_call_ids"]
