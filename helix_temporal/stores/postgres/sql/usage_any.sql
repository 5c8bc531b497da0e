-- Whether a session has entries.
-- $1 session id
SELECT EXISTS (SELECT FROM "{prefix}usage_entries" WHERE session_id = $1)
