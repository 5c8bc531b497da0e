-- name: stream_head
SELECT head FROM streams WHERE stream_id = :stream_id

-- name: stream_news
-- How far streams are; those that are gone are left out.
SELECT stream_id, made, last, revision FROM streams
WHERE stream_id IN (SELECT value FROM json_each(:stream_ids))

-- name: stream_put
INSERT INTO streams (stream_id, made, last, revision, updated_at, head)
VALUES (:stream_id, :made, :last, :revision, :updated_at, :head)
ON CONFLICT (stream_id) DO UPDATE SET
    made = excluded.made, last = excluded.last, revision = excluded.revision, updated_at = excluded.updated_at,
    head = excluded.head

-- name: stream_chunks
-- rule: stores.streams.rules.StreamLog.chunks_after
SELECT sequence, run_id, written_at, body FROM stream_chunks
WHERE made = :made AND sequence > :after ORDER BY sequence LIMIT :limit

-- name: stream_put_chunk
INSERT INTO stream_chunks (made, sequence, run_id, written_at, body)
VALUES (:made, :sequence, :run_id, :written_at, :body)

-- name: stream_trim
DELETE FROM stream_chunks WHERE made = :made AND sequence < :first

-- name: stream_known
SELECT key, sequence FROM stream_keys WHERE made = :made AND key IN (SELECT value FROM json_each(:keys))

-- name: stream_put_key
INSERT INTO stream_keys (made, key, sequence) VALUES (:made, :key, :sequence)

-- name: stream_delete
DELETE FROM streams WHERE stream_id = :stream_id RETURNING made

-- name: stream_delete_chunks
DELETE FROM stream_chunks WHERE made = :made

-- name: stream_delete_keys
DELETE FROM stream_keys WHERE made = :made

-- name: stream_expired
SELECT stream_id FROM streams WHERE updated_at <= :before ORDER BY updated_at LIMIT :limit
