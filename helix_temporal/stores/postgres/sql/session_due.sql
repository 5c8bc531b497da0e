-- $1 before this time, $2 how many, $3 and $4 beyond this time and id, or null.
-- rule: stores.sessions.operations.list_due
SELECT due_at, session_id FROM "{prefix}states"
WHERE due_at IS NOT NULL AND due_at < $1 AND NOT deleted
    AND ($3::bigint IS NULL OR (due_at, session_id) > ($3::bigint, $4::text))
ORDER BY due_at, session_id LIMIT $2
