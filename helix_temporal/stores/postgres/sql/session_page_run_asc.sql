-- $1 session, $2 how many, $3 and $4 beyond this order and key, or null.
SELECT run_id AS key, '' AS grp, turn AS ord, body FROM "{prefix}runs"
WHERE session_id = $1 AND ($3::bigint IS NULL OR (turn, run_id) > ($3::bigint, $4::text))
ORDER BY turn asc, run_id asc LIMIT $2
