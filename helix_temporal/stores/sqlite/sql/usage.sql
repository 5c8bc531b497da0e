-- name: usage_add
-- A row comes back if the entry is new.
INSERT INTO usage (session_id, id, timestamp, kind, run_id, agent_type, step_count, body)
VALUES (:session_id, :id, :timestamp, :kind, :run_id, :agent_type, :step_count, :body)
ON CONFLICT (session_id, id) DO NOTHING RETURNING 1

-- name: usage_of_session
-- rule: stores.usage.select_entries
SELECT session_id, id, body FROM usage WHERE session_id = :session_id AND {include:usage_matches}
ORDER BY timestamp, id LIMIT :limit OFFSET :offset

-- name: usage_by_id
SELECT session_id, id, body FROM usage
WHERE session_id = :session_id AND id IN (SELECT value FROM json_each(:ids))

-- name: usage_of_all
-- rule: stores.usage.select_entries
SELECT session_id, id, body FROM usage WHERE {include:usage_matches}
ORDER BY timestamp, session_id, id LIMIT :limit OFFSET :offset

-- name: usage_count
SELECT count(*) AS total FROM usage WHERE (:session_id IS NULL OR session_id = :session_id) AND {include:usage_matches}

-- name: _usage_matches
-- What a page filters by, each or null.
-- rule: stores.usage.UsageFilter.matches
(:kinds IS NULL OR kind IN (SELECT value FROM json_each(:kinds)))
    AND (:run_id IS NULL OR run_id = :run_id)
    AND (:agent_type IS NULL OR agent_type = :agent_type)
    AND (:first_step IS NULL OR step_count >= :first_step)
    AND (:last_step IS NULL OR step_count <= :last_step)
    AND (:since IS NULL OR timestamp >= :since)
    AND (:until IS NULL OR timestamp < :until)

-- name: usage_any
SELECT 1 FROM usage WHERE session_id = :session_id LIMIT 1

-- name: usage_delete
DELETE FROM usage WHERE session_id = :session_id RETURNING 1
