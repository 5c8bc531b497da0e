-- The first commit of a session: $1 session, $2 the revision it had (0), $3 fence, then the row.
INSERT INTO "{prefix}states" AS s (session_id, rev, max_epoch, deleted, body, version, status, agent_type, user_id,
    parent_session_id, root_session_id, tags, metadata, mode, failure_reason, step_count, resume_count,
    expires_at, cleanup_pending, created_at, updated_at, due_at)
VALUES ($1, $2::bigint + 1, $3, false, $4, $5, $6, $7, $8, $9, $10, $11::text[], $12::jsonb, $13, $14, $15, $16,
    $17, $18, $19, $20, $21)
ON CONFLICT (session_id) DO NOTHING
RETURNING s.session_id, s.rev
