-- name: session_row
SELECT revision, max_epoch, guard, state FROM sessions WHERE session_id = :session_id

-- name: session_guard
-- The same without the state, of which only is told whether it is there.
SELECT revision, max_epoch, guard, state IS NOT NULL AS present FROM sessions WHERE session_id = :session_id

-- name: session_put
-- A session with its state.
INSERT INTO sessions (
    session_id, revision, max_epoch, guard, agent_type, user_id, status, parent_session_id, labels, cleanup_pending,
    created_at, updated_at, expires_at, due_at, summary, state
) VALUES (
    :session_id, :revision, :max_epoch, :guard, :agent_type, :user_id, :status, :parent_session_id, :labels,
    :cleanup_pending, :created_at, :updated_at, :expires_at, :due_at, :summary, :state
) ON CONFLICT (session_id) DO UPDATE SET
    revision = excluded.revision, max_epoch = excluded.max_epoch, guard = excluded.guard,
    agent_type = excluded.agent_type, user_id = excluded.user_id, status = excluded.status,
    parent_session_id = excluded.parent_session_id, labels = excluded.labels,
    cleanup_pending = excluded.cleanup_pending, created_at = excluded.created_at, updated_at = excluded.updated_at,
    expires_at = excluded.expires_at, due_at = excluded.due_at, summary = excluded.summary, state = excluded.state

-- name: session_touch
-- Revision and fence of a session whose state stays as it is.
INSERT INTO sessions (session_id, revision, max_epoch, guard) VALUES (:session_id, :revision, :max_epoch, :guard)
ON CONFLICT (session_id) DO UPDATE SET
    revision = excluded.revision, max_epoch = excluded.max_epoch, guard = excluded.guard

-- name: session_delete
-- Everything of a session but revision and fence.
UPDATE sessions SET
    agent_type = NULL, user_id = NULL, status = NULL, parent_session_id = NULL, labels = NULL, cleanup_pending = NULL,
    created_at = NULL, updated_at = NULL, expires_at = NULL, due_at = NULL, summary = NULL, state = NULL
WHERE session_id = :session_id

-- name: session_delete_records
DELETE FROM records WHERE session_id = :session_id

-- name: record_one
SELECT kind, group_id, key, place, body FROM records
WHERE session_id = :session_id AND kind = :kind AND group_id = :group_id AND key = :key

-- name: record_group
SELECT kind, group_id, key, place, body FROM records
WHERE session_id = :session_id AND kind = :kind AND group_id = :group_id
ORDER BY place, key

-- name: record_newest
SELECT kind, group_id, key, place, body FROM records
WHERE session_id = :session_id AND kind = :kind
ORDER BY place DESC, key DESC LIMIT 1

-- name: record_put
INSERT INTO records (session_id, kind, group_id, key, place, body)
VALUES (:session_id, :kind, :group_id, :key, :place, :body)
ON CONFLICT (session_id, kind, group_id, key) DO UPDATE SET place = excluded.place, body = excluded.body

-- name: record_remove
DELETE FROM records WHERE session_id = :session_id AND kind = :kind AND group_id = :group_id AND key = :key

-- name: record_remove_group
DELETE FROM records WHERE session_id = :session_id AND kind = :kind AND group_id = :group_id

-- name: record_count
SELECT count(*) AS total FROM records WHERE session_id = :session_id AND kind = :kind

-- name: record_page_asc
SELECT kind, group_id, key, place, body FROM records
WHERE session_id = :session_id AND kind = :kind AND (:place IS NULL OR (place, key) > (:place, :key))
ORDER BY place, key LIMIT :limit

-- name: record_page_desc
SELECT kind, group_id, key, place, body FROM records
WHERE session_id = :session_id AND kind = :kind AND (:place IS NULL OR (place, key) < (:place, :key))
ORDER BY place DESC, key DESC LIMIT :limit

-- name: session_list
-- A page of the sessions that match; {field} is one of the two times, {direction} asc or desc, {beyond} < or >.
SELECT session_id, {field} AS at, summary FROM sessions
WHERE {matching} AND (:after_at IS NULL OR ({field}, session_id) {beyond} (:after_at, :after_id))
ORDER BY {field} {direction}, session_id {direction} LIMIT :limit OFFSET :offset

-- name: session_count
SELECT count(*) AS total FROM sessions WHERE {matching}

-- name: session_matching
-- Stands for {matching}; {date} is one of the two times.
summary IS NOT NULL
    AND (:user_id IS NULL OR user_id = :user_id)
    AND (:agent_type IS NULL OR agent_type = :agent_type)
    AND (:statuses IS NULL OR status IN (SELECT value FROM json_each(:statuses)))
    AND (:any_parent OR parent_session_id IS :parent_session_id)
    AND (:labels IS NULL OR NOT EXISTS (
        SELECT value FROM json_each(:labels) EXCEPT SELECT value FROM json_each(sessions.labels)
    ))
    AND (:date_from IS NULL OR {date} >= :date_from)
    AND (:date_to IS NULL OR {date} < :date_to)

-- name: session_scan
SELECT session_id FROM sessions
WHERE state IS NOT NULL AND session_id > :after
ORDER BY session_id LIMIT :limit

-- name: session_expired
SELECT session_id, expires_at, cleanup_pending FROM sessions
WHERE expires_at >= 0 AND expires_at < :before AND (:after_at IS NULL OR (expires_at, session_id) > (:after_at, :after_id))
ORDER BY expires_at, session_id LIMIT :limit

-- name: session_due
SELECT due_at, session_id FROM sessions
WHERE due_at >= 0 AND due_at < :before AND (:after_at IS NULL OR (due_at, session_id) > (:after_at, :after_id))
ORDER BY due_at, session_id LIMIT :limit

-- name: session_cleanup_pending
SELECT session_id FROM sessions
WHERE cleanup_pending = 1 AND session_id > :after
ORDER BY session_id LIMIT :limit

-- name: session_purge_operations
DELETE FROM records WHERE rowid IN (
    SELECT rowid FROM records WHERE kind = 'operation' AND place < :before ORDER BY place LIMIT :limit
) RETURNING 1
