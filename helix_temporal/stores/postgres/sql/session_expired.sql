-- $1 before this time, $2 how many, $3 and $4 beyond this time and id, or null.
-- rule: stores.sessions.operations.list_expired
SELECT session_id, expires_at, cleanup_pending FROM "{prefix}states"
WHERE expires_at IS NOT NULL AND expires_at < $1 AND NOT deleted
    AND ($3::bigint IS NULL OR (expires_at, session_id) > ($3::bigint, $4::text))
ORDER BY expires_at, session_id LIMIT $2
