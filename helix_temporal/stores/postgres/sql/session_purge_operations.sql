-- $1 before this time, $2 how many at most.
WITH old AS (SELECT session_id, op_id FROM "{prefix}ops" WHERE created_at < $1 ORDER BY created_at LIMIT $2
    FOR UPDATE SKIP LOCKED)
DELETE FROM "{prefix}ops" AS o USING old WHERE o.session_id = old.session_id AND o.op_id = old.op_id
