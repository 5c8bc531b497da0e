-- $1 before this time, $2 how many at most.
-- rule: stores.sessions.operations.without_old_operations
WITH old AS (
    SELECT session_id, kind, grp, key FROM "{prefix}session_rows" WHERE kind = 'operation' AND ord < $1
    ORDER BY ord LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM "{prefix}session_rows" AS r USING old AS o
WHERE r.session_id = o.session_id AND r.kind = o.kind AND r.grp = o.grp AND r.key = o.key
