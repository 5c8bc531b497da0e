-- A session and those of its records that are wanted: see _session_view for the arguments.  Sent are only the
-- branches that a view wants (`sessions.py`).
{include:session_view}
