-- $1 session, $2 how many, $3 and $4 beyond this order and key, or null.
SELECT key, '' AS grp, 0::bigint AS ord, body FROM "{prefix}thread_orders"
WHERE session_id = $1 AND ($3::bigint IS NULL OR (0::bigint, key) < ($3::bigint, $4::text))
ORDER BY 0::bigint desc, key desc LIMIT $2
