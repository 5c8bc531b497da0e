-- How many sessions match.  $1 to $11 see _session_matches.
-- rule: stores.sessions.operations.list_sessions
SELECT count(*) FROM "{prefix}states"
WHERE {include:session_matches}
