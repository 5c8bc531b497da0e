-- A payload that has not expired.
-- $1 thread id, $2 key
SELECT body FROM "{prefix}thread_payloads" WHERE thread_id = $1 AND key = $2 AND expires_at > {now}
