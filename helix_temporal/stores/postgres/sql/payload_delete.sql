-- Forgets a payload.
-- $1 thread id, $2 key
DELETE FROM "{prefix}thread_payloads" WHERE thread_id = $1 AND key = $2
