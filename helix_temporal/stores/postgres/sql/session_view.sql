-- A session and those of its records that are wanted: see _session_view for the arguments.
{include:session_view}
