-- $1 session, $2 how many, $3 and $4 beyond this order and key, or null.
SELECT tool_call_id AS key, step_id AS grp, seq AS ord, body FROM "{prefix}staging"
WHERE session_id = $1 AND ($3::bigint IS NULL OR (seq, tool_call_id) < ($3::bigint, $4::text))
ORDER BY seq desc, tool_call_id desc LIMIT $2
