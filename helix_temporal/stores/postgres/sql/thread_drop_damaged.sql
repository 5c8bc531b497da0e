-- Removes a thread whose header is damaged, if it has no message and no slice that the archive lacks.
-- $1 thread id, $2 position up to which the archive holds the messages, $3 slice that it holds
WITH gone AS (
    DELETE FROM "{prefix}threads" AS t
    -- rule: stores.threads.operations.may_drop_damaged
    WHERE t.thread_id = $1 AND t.slice = $3 AND NOT {include:sound}
        AND NOT EXISTS (SELECT FROM "{prefix}messages" AS m WHERE m.thread_id = $1 AND m.position >= $2)
    RETURNING t.thread_id
), messages AS (
    DELETE FROM "{prefix}messages" AS m USING gone WHERE m.thread_id = gone.thread_id
)
SELECT true FROM gone
