-- Keeps a payload; the same key again replaces it.
-- $1 thread id, $2 key, $3 bytes, $4 ms until it expires
INSERT INTO "{prefix}thread_payloads" (thread_id, key, body, expires_at)
VALUES ($1, $2, $3, {now} + $4::bigint)
ON CONFLICT (thread_id, key) DO UPDATE SET body = excluded.body, expires_at = excluded.expires_at
