-- name: thread_header
-- Header and slice of one thread.
SELECT header, slice FROM threads WHERE thread_id = :thread_id

-- name: thread_messages
-- The messages of a range, in order.
SELECT position, kind, id, body FROM messages
WHERE thread_id = :thread_id AND position >= :start AND position < :stop
ORDER BY position

-- name: thread_put
-- The thread's header and slice from now on.
INSERT INTO threads (thread_id, expires_at, header, slice) VALUES (:thread_id, :expires_at, :header, :slice)
ON CONFLICT (thread_id) DO UPDATE SET expires_at = excluded.expires_at, header = excluded.header, slice = excluded.slice

-- name: thread_put_header
-- The same where the slice stays.
UPDATE threads SET expires_at = :expires_at, header = :header WHERE thread_id = :thread_id

-- name: thread_put_message
INSERT INTO messages (thread_id, position, kind, id, body) VALUES (:thread_id, :position, :kind, :id, :body)

-- name: thread_cut_messages
-- Removes what stands before a position, and what stands from another one on.
DELETE FROM messages WHERE thread_id = :thread_id AND (position < :first OR position >= :stop)

-- name: thread_delete
DELETE FROM threads WHERE thread_id = :thread_id

-- name: thread_delete_messages
DELETE FROM messages WHERE thread_id = :thread_id

-- name: thread_last_message
-- Position of the newest message that is held.
SELECT max(position) AS position FROM messages WHERE thread_id = :thread_id

-- name: thread_expired
-- Threads that should have expired.
SELECT thread_id FROM threads WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit

-- name: thread_scan
SELECT thread_id, header, archived_place FROM threads WHERE thread_id > :after ORDER BY thread_id LIMIT :limit

-- name: thread_mark_archived
UPDATE threads SET archived_place = :place WHERE thread_id = :thread_id
