-- The first commit of a session; its new revision, or no row if there is a session already.
-- $1 session, $2 the revision it had (0), $3 fence, $4 to $13 rows (_session_rows), $14 to $32 the state.
-- rule: stores.sessions.operations.apply_commit
WITH guard AS (
    INSERT INTO "{prefix}states" AS s (session_id, rev, max_epoch, deleted, body, version, status, agent_type, user_id,
        parent_session_id, root_session_id, tags, metadata, mode, failure_reason, step_count, resume_count, expires_at,
        cleanup_pending, created_at, updated_at, due_at, summary)
    VALUES ($1, $2::bigint + 1, $3, false, $14, $15, $16, $17, $18, $19, $20, $21::text[], $22::jsonb, $23, $24, $25,
        $26, $27, $28, $29, $30, $31, $32)
    ON CONFLICT (session_id) DO NOTHING
    RETURNING s.session_id, s.rev
), {include:session_rows}
SELECT g.rev FROM guard AS g
