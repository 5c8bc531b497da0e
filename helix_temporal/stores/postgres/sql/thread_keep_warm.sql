-- Lets a thread that is archived and locked expire.
-- $1 thread id, $2 position and $3 size that are archived, $4 ms until it expires
-- rule: stores.threads.operations.evict_thread
UPDATE "{prefix}threads"
SET archived = $2, archived_size = $3, unarchived_since = 0, expires_at = {now} + $4::bigint
WHERE thread_id = $1
