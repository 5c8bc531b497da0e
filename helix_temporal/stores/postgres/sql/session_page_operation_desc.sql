-- $1 session, $2 how many, $3 and $4 beyond this order and key, or null.
SELECT op_id AS key, '' AS grp, created_at AS ord, body FROM "{prefix}ops"
WHERE session_id = $1 AND ($3::bigint IS NULL OR (created_at, op_id) < ($3::bigint, $4::text))
ORDER BY created_at desc, op_id desc LIMIT $2
