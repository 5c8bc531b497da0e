-- A session and those of its rows that are wanted.  Arguments and columns as in _session_view.sql.
{include:session_view}
