-- name: payload_put
INSERT INTO payloads (thread_id, key, expires_at, body) VALUES (:thread_id, :key, :expires_at, :body)
ON CONFLICT (thread_id, key) DO UPDATE SET expires_at = excluded.expires_at, body = excluded.body

-- name: payload_get
SELECT body FROM payloads WHERE thread_id = :thread_id AND key = :key AND expires_at > :now

-- name: payload_delete
DELETE FROM payloads WHERE thread_id = :thread_id AND key = :key

-- name: payloads_delete
DELETE FROM payloads WHERE thread_id = :thread_id

-- name: payload_purge
DELETE FROM payloads WHERE rowid IN (
    SELECT rowid FROM payloads WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit
)
