-- $1 session, $2 how many, $3 and $4 beyond this order and key, or null.
SELECT sub_session_id AS key, '' AS grp, seq AS ord, body FROM "{prefix}sub_session_refs"
WHERE session_id = $1 AND ($3::bigint IS NULL OR (seq, sub_session_id) > ($3::bigint, $4::text))
ORDER BY seq asc, sub_session_id asc LIMIT $2
