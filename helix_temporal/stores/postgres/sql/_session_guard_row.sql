-- A commit with a new state: as the first one's arguments, if the revision is still $2.
UPDATE "{prefix}states" AS s SET rev = s.rev + 1, max_epoch = greatest(s.max_epoch, $3::bigint), deleted = false,
    body = $4, version = $5, status = $6, agent_type = $7, user_id = $8, parent_session_id = $9,
    root_session_id = $10, tags = $11::text[], metadata = $12::jsonb, mode = $13, failure_reason = $14,
    step_count = $15, resume_count = $16, expires_at = $17, cleanup_pending = $18, created_at = $19,
    updated_at = $20, due_at = $21
WHERE s.session_id = $1 AND s.rev = $2
RETURNING s.session_id, s.rev
