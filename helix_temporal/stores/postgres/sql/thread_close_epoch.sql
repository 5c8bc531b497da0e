-- Refuses further writes of one epoch.
-- $1 thread id, $2 epoch
-- rule: stores.threads.operations.close_epoch
UPDATE "{prefix}threads" AS t SET closed = true
WHERE t.thread_id = $1 AND t.epoch = $2 AND NOT t.closed AND {include:sound}
