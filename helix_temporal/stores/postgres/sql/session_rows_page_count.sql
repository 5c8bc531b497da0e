-- $1 session, $2 kind.
SELECT count(*) FROM "{prefix}session_rows" WHERE session_id = $1 AND kind = $2
