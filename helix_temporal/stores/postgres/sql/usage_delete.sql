-- Removes the entries of a session and counts them.
-- $1 session id
WITH gone AS (DELETE FROM "{prefix}usage_entries" WHERE session_id = $1 RETURNING 1)
SELECT count(*) FROM gone
