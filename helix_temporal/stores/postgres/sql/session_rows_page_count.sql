-- $1 session, $2 kind.
-- rule: stores.sessions.operations.page_rows
SELECT count(*) FROM "{prefix}session_rows" WHERE session_id = $1 AND kind = $2
