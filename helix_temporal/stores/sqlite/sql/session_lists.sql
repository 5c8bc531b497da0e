-- Lists over all sessions.

-- name: session_list_created_at_asc
-- rule: stores.sessions.operations.list_sessions
SELECT session_id, created_at AS at, {include:session_shown} FROM sessions
WHERE {include:session_matches}
    AND (:after_at IS NULL OR (created_at, session_id) > (:after_at, :after_id))
ORDER BY created_at, session_id LIMIT :limit OFFSET :offset

-- name: session_list_created_at_desc
-- rule: stores.sessions.operations.list_sessions
SELECT session_id, created_at AS at, {include:session_shown} FROM sessions
WHERE {include:session_matches}
    AND (:after_at IS NULL OR (created_at, session_id) < (:after_at, :after_id))
ORDER BY created_at DESC, session_id DESC LIMIT :limit OFFSET :offset

-- name: session_list_updated_at_asc
-- rule: stores.sessions.operations.list_sessions
SELECT session_id, updated_at AS at, {include:session_shown} FROM sessions
WHERE {include:session_matches}
    AND (:after_at IS NULL OR (updated_at, session_id) > (:after_at, :after_id))
ORDER BY updated_at, session_id LIMIT :limit OFFSET :offset

-- name: session_list_updated_at_desc
-- rule: stores.sessions.operations.list_sessions
SELECT session_id, updated_at AS at, {include:session_shown} FROM sessions
WHERE {include:session_matches}
    AND (:after_at IS NULL OR (updated_at, session_id) < (:after_at, :after_id))
ORDER BY updated_at DESC, session_id DESC LIMIT :limit OFFSET :offset

-- name: session_list_count
-- rule: stores.sessions.operations.list_sessions
SELECT count(*) AS total FROM sessions WHERE {include:session_matches}

-- name: _session_shown
-- The summary, or the state that it is part of.
CASE WHEN :whole THEN state ELSE summary END AS shown, :whole AS whole

-- name: _session_matches
-- What a list filters by, each or null.
-- rule: stores.sessions.operations.matches_query
summary IS NOT NULL
    AND (:user_id IS NULL OR user_id = :user_id)
    AND (:agent_type IS NULL OR agent_type = :agent_type)
    AND (:statuses IS NULL OR status IN (SELECT value FROM json_each(:statuses)))
    AND (:any_parent OR parent_session_id IS :parent_session_id)
    AND (:labels IS NULL OR NOT EXISTS (
        SELECT value FROM json_each(:labels) EXCEPT SELECT value FROM json_each(sessions.labels)
    ))
    AND (:created_from IS NULL OR created_at >= :created_from)
    AND (:created_before IS NULL OR created_at < :created_before)
    AND (:updated_from IS NULL OR updated_at >= :updated_from)
    AND (:updated_before IS NULL OR updated_at < :updated_before)

-- name: session_scan
SELECT session_id FROM sessions
WHERE state IS NOT NULL AND session_id > :after
ORDER BY session_id LIMIT :limit

-- name: session_expired
-- rule: stores.sessions.operations.list_expired
SELECT session_id, expires_at, cleanup_pending FROM sessions
WHERE expires_at >= 0 AND expires_at < :before AND (:after_at IS NULL OR (expires_at, session_id) > (:after_at, :after_id))
ORDER BY expires_at, session_id LIMIT :limit

-- name: session_due
-- rule: stores.sessions.operations.list_due
SELECT due_at, session_id FROM sessions
WHERE due_at >= 0 AND due_at < :before AND (:after_at IS NULL OR (due_at, session_id) > (:after_at, :after_id))
ORDER BY due_at, session_id LIMIT :limit

-- name: session_cleanup_pending
SELECT session_id FROM sessions
WHERE cleanup_pending = 1 AND session_id > :after
ORDER BY session_id LIMIT :limit
