-- Removes some of the threads that have expired.
-- $1 number of threads
WITH gone AS (
    DELETE FROM "{prefix}threads" WHERE thread_id IN (
        SELECT t.thread_id FROM "{prefix}threads" AS t
        -- rule: stores.threads.operations.HotThread.expired
        WHERE t.expires_at <= {now} ORDER BY t.expires_at LIMIT $1 FOR UPDATE SKIP LOCKED
    )
    RETURNING thread_id
), messages AS (
    DELETE FROM "{prefix}messages" AS m USING gone WHERE m.thread_id = gone.thread_id
)
SELECT count(*) FROM gone
