-- The first commit of a session without a state: only revision, fence and records.  $1 session, $2 the revision it
-- had (0), $3 fence.
INSERT INTO "{prefix}states" AS s (session_id, rev, max_epoch, deleted, body, version, status, agent_type, tags,
    metadata, step_count, resume_count, cleanup_pending, created_at, updated_at)
VALUES ($1, $2::bigint + 1, $3, true, '', 0, '', '', '{}', '{}', 0, 0, false, 0, 0)
ON CONFLICT (session_id) DO NOTHING
RETURNING s.session_id, s.rev
