-- $1 session, $2 how many, $3 and $4 beyond this order and key, or null.
SELECT run_id AS key, step_id AS grp, 0::bigint AS ord, body FROM "{prefix}closed_steps"
WHERE session_id = $1 AND ($3::bigint IS NULL OR (0::bigint, run_id) > ($3::bigint, $4::text))
ORDER BY 0::bigint asc, run_id asc LIMIT $2
