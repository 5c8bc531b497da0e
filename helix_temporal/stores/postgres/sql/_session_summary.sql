-- What a list tells of a session.
session_id, agent_type, user_id, status, version, step_count, tags, parent_session_id, expires_at, created_at,
    updated_at
