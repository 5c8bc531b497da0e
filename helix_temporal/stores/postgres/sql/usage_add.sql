-- Adds an entry; no row if the session has one of that id.
-- $1 session and entry id, $2 session id, $3 agent type, $4 kind, $5 run id, $6 step, $7 ms, $8 body
INSERT INTO "{prefix}usage_entries" (id, session_id, agent_type, kind, run_id, step_count, "timestamp", body)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (id) DO NOTHING
RETURNING 1
