-- The columns of a state, $1 to $19.
body = $1, version = $2, status = $3, agent_type = $4, user_id = $5, parent_session_id = $6, root_session_id = $7,
    tags = $8::text[], metadata = $9::jsonb, mode = $10, failure_reason = $11, step_count = $12, resume_count = $13,
    expires_at = $14, cleanup_pending = $15, created_at = $16, updated_at = $17, due_at = $18, summary = $19
