-- Removes a thread whose header is locked.
-- $1 thread id
WITH gone AS (DELETE FROM "{prefix}messages" WHERE thread_id = $1)
DELETE FROM "{prefix}threads" WHERE thread_id = $1
