-- $1 session, $2 how many, $3 and $4 beyond this order and key, or null.
SELECT id AS key, '' AS grp, seq AS ord, body FROM "{prefix}checkpoint_states"
WHERE session_id = $1 AND ($3::bigint IS NULL OR (seq, id) < ($3::bigint, $4::text))
ORDER BY seq desc, id desc LIMIT $2
