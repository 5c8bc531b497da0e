-- Forgets the messages of a locked thread below a position that lies beyond its base.
-- $1 thread id, $2 the new base
-- rule: stores.threads.operations.trim_thread
WITH gone AS (
    DELETE FROM "{prefix}messages" AS m WHERE m.thread_id = $1 AND m.position < $2
    RETURNING m.position, m.id, {include:size} AS size
)
UPDATE "{prefix}threads" AS t
SET base = $2, base_id = (SELECT gone.id FROM gone WHERE gone.position = $2 - 1),
    base_size = t.base_size + (SELECT sum(gone.size) FROM gone)
WHERE t.thread_id = $1
RETURNING {include:header}
