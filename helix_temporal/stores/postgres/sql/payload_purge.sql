-- Removes some of the payloads that have expired.
-- $1 number of payloads
DELETE FROM "{prefix}thread_payloads" WHERE (thread_id, key) IN (
    SELECT thread_id, key FROM "{prefix}thread_payloads"
    WHERE expires_at <= {now} ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED
)
