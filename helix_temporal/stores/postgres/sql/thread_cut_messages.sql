-- Removes the messages outside a range from a thread whose header is locked.
-- $1 thread id, $2 first position to keep, $3 one past the last
DELETE FROM "{prefix}messages" WHERE thread_id = $1 AND (position < $2 OR position >= $3)
