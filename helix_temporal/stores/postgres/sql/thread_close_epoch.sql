-- Refuses further writes of one epoch.
-- $1 thread id, $2 epoch
UPDATE "{prefix}threads" SET closed = true WHERE thread_id = $1 AND epoch = $2 AND NOT closed
