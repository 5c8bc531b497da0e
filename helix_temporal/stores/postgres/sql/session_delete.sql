-- A session's state and rows go; revision and fence stay behind in `states`.
-- $1 session, $2 the revision it had, $3 fence.
-- rule: stores.sessions.operations.apply_commit
WITH guard AS (
    UPDATE "{prefix}states" AS s
    SET rev = s.rev + 1, max_epoch = greatest(s.max_epoch, $3::bigint), deleted = true, body = '', version = 0,
        status = '', agent_type = '', user_id = NULL, parent_session_id = NULL, root_session_id = NULL, tags = '{}',
        metadata = '{}', mode = NULL, failure_reason = NULL, step_count = 0, resume_count = 0, expires_at = NULL,
        cleanup_pending = false, due_at = NULL, summary = NULL
    WHERE s.session_id = $1 AND s.rev = $2
    RETURNING s.session_id, s.rev
), removed AS (
    DELETE FROM "{prefix}session_rows" AS r USING guard AS g WHERE r.session_id = g.session_id
)
SELECT g.rev FROM guard AS g
