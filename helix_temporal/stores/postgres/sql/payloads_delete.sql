-- Forgets all payloads of a thread.
-- $1 thread id
DELETE FROM "{prefix}thread_payloads" WHERE thread_id = $1
