-- name: session_state
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

-- name: session_delete_rows
DELETE FROM session_rows WHERE session_id = :session_id

-- name: row_one
-- rule: stores.sessions.operations.select_rows
SELECT kind, group_id, key, place, body FROM session_rows
WHERE session_id = :session_id AND kind = :kind AND group_id = :group_id AND key = :key

-- name: row_group
-- rule: stores.sessions.operations.select_rows
SELECT kind, group_id, key, place, body FROM session_rows
WHERE session_id = :session_id AND kind = :kind AND group_id = :group_id
ORDER BY place, key

-- name: row_newest
-- rule: stores.sessions.operations.select_rows
SELECT kind, group_id, key, place, body FROM session_rows
WHERE session_id = :session_id AND kind = :kind
ORDER BY place DESC, key DESC LIMIT 1

-- name: row_put
INSERT INTO session_rows (session_id, kind, group_id, key, place, body)
VALUES (:session_id, :kind, :group_id, :key, :place, :body)
ON CONFLICT (session_id, kind, group_id, key) DO UPDATE SET place = excluded.place, body = excluded.body

-- name: row_remove
DELETE FROM session_rows WHERE session_id = :session_id AND kind = :kind AND group_id = :group_id AND key = :key

-- name: row_remove_group
DELETE FROM session_rows WHERE session_id = :session_id AND kind = :kind AND group_id = :group_id

-- name: row_count
-- rule: stores.sessions.operations.page_rows
SELECT count(*) AS total FROM session_rows WHERE session_id = :session_id AND kind = :kind

-- name: row_page_asc
-- rule: stores.sessions.operations.page_rows
SELECT kind, group_id, key, place, body FROM session_rows
WHERE session_id = :session_id AND kind = :kind AND (:place IS NULL OR (place, key) > (:place, :key))
ORDER BY place, key LIMIT :limit

-- name: row_page_desc
-- rule: stores.sessions.operations.page_rows
SELECT kind, group_id, key, place, body FROM session_rows
WHERE session_id = :session_id AND kind = :kind AND (:place IS NULL OR (place, key) < (:place, :key))
ORDER BY place DESC, key DESC LIMIT :limit

-- name: row_group_page_asc
SELECT kind, group_id, key, place, body FROM session_rows
WHERE session_id = :session_id AND kind = :kind AND group_id = :group_id AND key > coalesce(:after, '')
ORDER BY key LIMIT :limit

-- name: row_group_page_desc
SELECT kind, group_id, key, place, body FROM session_rows
WHERE session_id = :session_id AND kind = :kind AND group_id = :group_id AND (:after IS NULL OR key < :after)
ORDER BY key DESC LIMIT :limit

-- name: row_groups
-- One look into the index for each group, and none at the other rows of it.
WITH RECURSIVE found (group_id) AS (
    SELECT min(group_id) FROM session_rows
    WHERE session_id = :session_id AND kind = :kind AND group_id >= :first AND group_id < :stop
    UNION ALL
    SELECT (
        SELECT min(r.group_id) FROM session_rows AS r
        WHERE r.session_id = :session_id AND r.kind = :kind AND r.group_id > found.group_id AND r.group_id < :stop
    ) FROM found WHERE found.group_id IS NOT NULL
)
SELECT group_id FROM found WHERE group_id IS NOT NULL LIMIT :limit

-- name: session_purge_operations
-- rule: stores.sessions.operations.without_old_operations
DELETE FROM session_rows WHERE rowid IN (
    SELECT rowid FROM session_rows WHERE kind = 'operation' AND place < :before ORDER BY place LIMIT :limit
) RETURNING 1
